#pragma once

#include <torch/optim/optimizer.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <source_location>
#include <vector>

#include "retinue/torch/sharded_optimizer.h"
#include "torch/optim/optimizer_shard.h"
#include "torch/optim/optimizer_slices.h"
#include "torch/optim/optimizer_update.h"
#include "torch/training/shared_parameters.h"

namespace retinue {

/// What a ShardedOptimizer does together with the other ranks.
class ShardedOptimizerBase::Impl {
 public:
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;

  Impl(ShardedOptimizerAlgorithm algorithm, DataParallelCore& ddp, const Groups& groups, std::source_location where);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  OptimizerShard& shard() { return *shard_; }
  const OptimizerUpdate& algorithm() const { return update_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  const ProcessGroup& group() const { return group_; }

  /// Returns whether anything was updated.
  bool step(const Groups& groups);
  double clip(double max_norm, double norm_type);
  bool unscale(double loss_scale);

 private:
  void take_parameters(DataParallelCore& ddp, const Groups& groups);
  void find_places();
  void flatten(const FlatLayout& layout);
  void check_groups(const Groups& groups) const;
  void check_places() const;
  OptimizerShard::GradientOf gradients() const;
  bool has_shared_gradients() const;
  void note_update();
  bool step_shared(const Groups& groups, bool skips);
  void begin_use();
  void gather();
  double divisor() const;
  void scale(double factor);
  double norm_of(double norm_type);

  OptimizerUpdate update_;
  ProcessGroup group_;
  std::shared_ptr<SharedGradients> shared_;  ///< Null: each rank has all parameters.
  std::source_location where_;
  std::size_t given_ = 0;  ///< Parameters in the groups.
  std::vector<at::Tensor> parameters_;
  std::vector<std::size_t> group_of_;
  std::vector<std::size_t> places_;  ///< In `shared_`.
  at::Tensor memory_;                ///< Of all parameters, if they are not shared.
  std::vector<std::size_t> begins_;  ///< Of parameters in it. Units: bytes.
  std::optional<UndoLog> undo_;
  std::optional<OptimizerShard> shard_;
  double divisor_ = 1;
  bool skips_ = false;
};

}  // namespace retinue
