#pragma once

#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "retinue/torch/process_group.h"

namespace retinue {

struct DistributedSamplerOptions {
  int num_replicas = 1;  ///< Number of ranks that share the data set.
  int rank = 0;
  bool shuffle = true;
  std::int64_t seed = 0;   ///< Equal on all ranks.
  bool drop_last = false;  ///< Drops the tail that doesn't divide evenly, instead of repeating the head.
};

/// As DistributedSamplerOptions, but a group gives the number of ranks and this one's rank.
struct GroupSamplerOptions {
  bool shuffle = true;
  std::int64_t seed = 0;
  bool drop_last = false;
};

/// A sampler that gives each rank its part of a data set: the same indices, in the same order, as PyTorch's Python
/// class of this name.
///
/// Copies share the epoch, because a DataLoader keeps a copy. Call set_epoch() on your own copy before each pass over
/// the loader; otherwise every pass has the same order. The new epoch takes effect at the next reset(), such as at
/// begin() of a loader.
///
/// Threads: set_epoch() and epoch() from any; the rest one call at a time.
/// Errors: UsageError for a rank outside of [0, num_replicas).
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  DistributedSampler(std::size_t dataset_size, DistributedSamplerOptions options);
  DistributedSampler(std::size_t dataset_size, const ProcessGroup& group, GroupSamplerOptions options = {});

  void set_epoch(std::int64_t epoch);
  std::int64_t epoch() const;

  /// Returns the number of indices that each rank gets in an epoch.
  std::size_t size() const;

  /// Starts a pass over the current epoch's indices, of a data set of `new_size` items if that is given.
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;

  /// Returns the next `batch_size` indices, fewer at the end, and then none.
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;

  /// Saves epoch and position, so that a loaded sampler continues where this one stopped.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct SharedEpoch;

  void fill_indices();

  std::size_t dataset_size_;
  DistributedSamplerOptions options_;
  std::shared_ptr<SharedEpoch> epoch_;
  std::optional<std::int64_t> filled_epoch_;  ///< The epoch whose indices are in `indices_`.
  std::vector<std::size_t> indices_;
  std::size_t position_ = 0;
};

}  // namespace retinue
