#pragma once

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <memory>
#include <source_location>
#include <type_traits>
#include <utility>
#include <vector>

#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/sharded_state.h"

namespace retinue {

enum class ShardedOptimizerAlgorithm : std::uint8_t { kSgd, kAdam, kAdamW };

/// The part of ShardedOptimizer that is the same for all algorithms.
class ShardedOptimizerBase : public torch::optim::Optimizer, public ShardedState {
 public:
  ~ShardedOptimizerBase() override;

  /// Updates this rank's slice of the parameters, and gives all ranks all slices. With share_parameters it also
  /// averages the gradients, in the same pass; afterwards no parameter has a gradient. Parameters without a gradient
  /// stay as they are.
  ///
  /// Blocking: all ranks call it, and wait for each other, at most the group's timeout. Errors: those of collectives.
  /// After an error with share_parameters: the parameters are those after the last step that all ranks completed.
  at::Tensor step(LossClosure closure = nullptr) override;

  /// Scales the averaged gradients so that their common norm is at most `max_norm`, and returns the norm that they had.
  /// Call it after the last backward of a step. Blocking: all ranks call it.
  /// Errors: UsageError for a `max_norm` or `norm_type` that is not above 0.
  double clip_grad_norm_(double max_norm, double norm_type = 2.0);

  /// Divides the gradients by the factor that the loss was multiplied by. Returns whether all are finite; otherwise the
  /// next step() changes nothing. Call it before clip_grad_norm_(). Blocking: all ranks call it.
  /// Errors: UsageError for a `loss_scale` that is not above 0 or not finite.
  bool unscale_(double loss_scale);

  /// Saves this rank's state. It can be loaded by the same rank of as many ranks.
  void save(torch::serialize::OutputArchive& archive) const override;
  /// Errors: UsageError for a state of another rank, another number of ranks or other parameters.
  void load(torch::serialize::InputArchive& archive) override;

  /// For Checkpoint: an optimizer with this rank's slices of the parameters, and their state. What it has when the next
  /// step() begins is this optimizer's state from then on. Errors: UsageError for a parameter that is not contiguous.
  torch::optim::Optimizer& local_optimizer() override;
  /// Returns what this rank updates, without empty slices. state() has, for each of these parameters, the state of just
  /// these elements, in the order of their memory, from the first step() on.
  std::vector<ParameterSlice> slices() const override;

 protected:
  ShardedOptimizerBase(ShardedOptimizerAlgorithm algorithm, DataParallelCore& ddp,
                       std::vector<torch::optim::OptimizerParamGroup> groups,
                       std::unique_ptr<torch::optim::OptimizerOptions> defaults, std::source_location where);

 private:
  void take_state_of_local() const;

  class Impl;
  std::unique_ptr<Impl> impl_;
  std::unique_ptr<torch::optim::Optimizer> local_;
  mutable bool local_may_have_changed_ = false;
};

/// An optimizer whose state and work are divided among the ranks (ZeRO stage 1): each rank updates its slice of the
/// parameters. `Algorithm` is torch::optim::SGD, Adam or AdamW, which it equals up to rounding, and all ranks have the
/// same bits. In Python: ZeroRedundancyOptimizer.
///
/// Make it from a DistributedDataParallel. With its option share_parameters the ranks have one copy of the parameters,
/// and averaging, clipping and updating are one pass over a rank's slice. Otherwise the optimizer moves the parameters
/// into one run of memory per rank, and each step() ends with an all_gather.
///
/// Learning rate schedulers, and changes of `param_groups()[i].options()`, work as with other optimizers. All ranks
/// make the same ones.
///
/// Memory: state for 1/ranks of the parameters. With share_parameters also a copy of the parameters for each host, from
/// which a step that failed is undone. Errors of the constructor: UsageError for a parameter that is not the module's,
/// or is in two groups; c10::Error for options out of range.
template <typename Algorithm>
class ShardedOptimizer final : public ShardedOptimizerBase {
  static constexpr bool kIsSgd = std::is_same_v<Algorithm, torch::optim::SGD>;
  static constexpr bool kIsAdam = std::is_same_v<Algorithm, torch::optim::Adam>;
  static constexpr bool kIsAdamW = std::is_same_v<Algorithm, torch::optim::AdamW>;
  static_assert(kIsSgd || kIsAdam || kIsAdamW, "ShardedOptimizer needs torch::optim::SGD, Adam or AdamW");

 public:
  using Options =
      std::conditional_t<kIsSgd, torch::optim::SGDOptions,
                         std::conditional_t<kIsAdam, torch::optim::AdamOptions, torch::optim::AdamWOptions>>;

  /// Updates all parameters of the module that require gradients.
  template <typename Net>
  ShardedOptimizer(DistributedDataParallel<Net>& ddp, Options options,
                   std::source_location where = std::source_location::current())
      : ShardedOptimizer(ddp, {torch::optim::OptimizerParamGroup(ddp.parameters())}, std::move(options), where) {}

  /// Updates the parameters of the groups; `defaults` are for those without options.
  template <typename Net>
  ShardedOptimizer(DistributedDataParallel<Net>& ddp, std::vector<torch::optim::OptimizerParamGroup> groups,
                   Options defaults, std::source_location where = std::source_location::current())
      : ShardedOptimizerBase(kAlgorithm, ddp.core(), checked(std::move(groups), defaults),
                             std::make_unique<Options>(defaults), where) {}

 private:
  static constexpr auto kAlgorithm = kIsSgd    ? ShardedOptimizerAlgorithm::kSgd
                                     : kIsAdam ? ShardedOptimizerAlgorithm::kAdam
                                               : ShardedOptimizerAlgorithm::kAdamW;

  /// LibTorch's constructor checks the options.
  static std::vector<torch::optim::OptimizerParamGroup> checked(std::vector<torch::optim::OptimizerParamGroup> groups,
                                                                const Options& defaults) {
    Algorithm(groups, defaults);
    return groups;
  }
};

/// PyTorch's name for it.
template <typename Algorithm>
using ZeroRedundancyOptimizer = ShardedOptimizer<Algorithm>;

}  // namespace retinue
