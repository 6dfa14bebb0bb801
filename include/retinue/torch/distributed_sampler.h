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

/// Where a pass over the indices of an epoch stands, whatever the number of ranks.
struct DistributedSamplerState {
  std::int64_t epoch = 0;
  std::size_t consumed = 0;  ///< Indices of the epoch's order, by all ranks together.

  template <class Archive>
  void serialize(Archive& archive) {
    archive(epoch, consumed);
  }
};

/// A sampler that gives each rank its part of a data set: the same indices, in the same order, as PyTorch's Python
/// class of this name.
///
/// Copies share the epoch, because a DataLoader keeps a copy. Call set_epoch() on your own copy before each pass over
/// the loader; otherwise every pass has the same order. The new epoch takes effect at the next reset(), such as at
/// begin() of a loader.
///
/// To continue in the middle of an epoch, save state() with a checkpoint, and pass it to resume_at(), on all ranks. The
/// number of ranks may be another one.
///
/// Threads: set_epoch(), epoch(), state() and resume_at() from any; the rest one call at a time.
/// Errors: UsageError for a rank outside of [0, num_replicas).
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  DistributedSampler(std::size_t dataset_size, DistributedSamplerOptions options);
  DistributedSampler(std::size_t dataset_size, const ProcessGroup& group, GroupSamplerOptions options = {});

  /// Another epoch than the current one begins at its first index, whatever resume_at() said.
  void set_epoch(std::int64_t epoch);
  std::int64_t epoch() const;

  /// Returns where this rank's loop stands that has consumed `consumed` indices since its pass began. A loader has
  /// taken more than that from its sampler, if it prefetches.
  DistributedSamplerState state(std::size_t consumed) const;
  /// Sets the epoch to the state's. The next pass over it has only the indices that are left.
  /// Errors: UsageError if the epoch has fewer indices.
  void resume_at(const DistributedSamplerState& state);
  /// The same for the current epoch, of which this rank, and each of the others, has consumed `consumed` indices.
  void resume_at(std::size_t consumed);

  /// Returns the number of indices that each rank gets in an epoch.
  std::size_t size() const;

  /// Starts a pass over the current epoch's indices, or over those that resume_at() left, of a data set of `new_size`
  /// items if that is given.
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;

  /// Returns the next `batch_size` indices, fewer at the end, and then none.
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;

  /// Saves epoch and position of this copy, so that a loaded sampler, or a loader with a copy of it, continues where
  /// this one stopped. For passes of a loader save state() instead: the loader's copy has another position.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct SharedPass;

  void begin_pass();
  void fill_indices();
  DistributedSamplerState state_at(std::int64_t epoch, std::size_t start, std::size_t consumed) const;

  std::size_t dataset_size_;
  DistributedSamplerOptions options_;
  std::shared_ptr<SharedPass> shared_;
  std::optional<std::int64_t> filled_epoch_;  ///< The epoch whose indices are in `indices_`,
  std::size_t filled_start_ = 0;              ///< without those before this place in its order.
  std::vector<std::size_t> indices_;
  std::size_t position_ = 0;
};

}  // namespace retinue
