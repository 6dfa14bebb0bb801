#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <cstddef>
#include <functional>
#include <source_location>
#include <vector>

#include "retinue/torch/process_group.h"

/// A model whose layers are divided among ranks, after torch.distributed.pipelining. A batch passes through the ranks
/// in micro-batches, so that the ranks work at the same time.
namespace retinue {

/// Divides a model before the modules at these places, each counted from 0. The parts have the model's own modules,
/// under their names in it, so entries of the parts' state dicts are named as the model's.
/// Errors: UsageError for places that don't ascend, or that leave a part empty.
std::vector<torch::nn::Sequential> split_sequential(const torch::nn::Sequential& model,
                                                    const std::vector<std::size_t>& split_points);
/// Divides a model into parts with about as many parameters, of at least one module each.
/// Errors: UsageError if the model has fewer modules than parts.
std::vector<torch::nn::Sequential> split_by_parameters(const torch::nn::Sequential& model, int num_stages);

struct PipelineStageOptions {
  /// The ranks that have the same stage in other pipelines, with other batches. Their gradients are averaged at the end
  /// of each step, and the constructor gives them the parameters and buffers of the group's rank 0. All stages of a
  /// pipeline have such a group, or none.
  ProcessGroup data_parallel_group = {};
};

/// This rank's part of a pipeline: rank r of the group has stage r.
class PipelineStage {
 public:
  /// Makes the stage. Blocking: only with a data_parallel_group. Errors: UsageError for a null group or an empty
  /// module, and, on all its ranks, for a data_parallel_group whose ranks have different parameters.
  PipelineStage(torch::nn::Sequential submodule, ProcessGroup group, PipelineStageOptions options = {},
                std::source_location where = std::source_location::current());

  const torch::nn::Sequential& submodule() const { return submodule_; }
  const ProcessGroup& group() const { return group_; }
  const ProcessGroup& data_parallel_group() const { return options_.data_parallel_group; }
  int stage_index() const { return group_->getRank(); }
  int num_stages() const { return group_->getSize(); }
  bool is_first() const { return stage_index() == 0; }
  bool is_last() const { return stage_index() == num_stages() - 1; }

 private:
  torch::nn::Sequential submodule_;
  ProcessGroup group_;
  PipelineStageOptions options_;
};

struct Schedule1F1BOptions {
  int n_microbatches = 1;
  /// Returns the loss, a scalar, of a micro-batch's output and target. Only the last stage calls it.
  std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)> loss_fn = {};
  /// The loss is a mean over the micro-batch: gradients become those of the mean over the batch. Set it to false for
  /// losses that are sums.
  bool scale_grads = true;
};

/// What a step needs; a rank may also pass what only other ranks need.
struct PipelineBatch {
  at::Tensor input = {};                      ///< Of the first stage. Shape: [batch, ...].
  at::Tensor target = {};                     ///< Of the last stage, for loss_fn. Shape: [batch, ...].
  std::vector<at::Tensor>* losses = nullptr;  ///< On the last stage: gets the loss of each micro-batch, detached.
};

/// The 1F1B schedule: after a start-up, each rank makes one forward and one backward in turn. A rank keeps the
/// activations of at most as many micro-batches as stages begin with its own.
///
/// Threads: one call at a time.
class Schedule1F1B {
 public:
  /// Makes the schedule. Blocking: until all ranks of the stage's group have come. Errors: UsageError on all of them if
  /// one rank's options are invalid or differ, or if only some have a data_parallel_group.
  Schedule1F1B(PipelineStage stage, Schedule1F1BOptions options,
               std::source_location where = std::source_location::current());

  /// Makes the forwards and backwards of a batch, which adds to the gradients of this stage's parameters those of the
  /// whole batch. Returns the joined outputs on the last stage, detached, and an undefined tensor on the others.
  ///
  /// Shape: the batch is divided along the first dimension into micro-batches, whose sizes differ by one at most.
  /// Activations between stages are one tensor each, of any shape and type, which may differ between micro-batches.
  /// Blocking: until all stages are done. Errors: an exception in one rank's module or loss ends the step on all ranks:
  /// that rank gets the exception, and the others UsageError, which names the rank, the micro-batch and the text. The
  /// same for a batch with fewer rows than micro-batches, and for different numbers of rows in input and target.
  /// PeerLost, TimeoutError. After an error: gradients are unspecified. After an exception of a module, a loss, or
  /// UsageError, the group is usable. Cost: two messages for each micro-batch and neighbour in each direction, and a
  /// small collective at the end.
  at::Tensor step(const PipelineBatch& batch, std::source_location where = std::source_location::current());

  /// Makes the forwards only, without gradients. The target may be undefined; then there are no losses.
  at::Tensor eval(const PipelineBatch& batch, std::source_location where = std::source_location::current());

  const PipelineStage& stage() const { return stage_; }

 private:
  at::Tensor run(const PipelineBatch& batch, bool has_backward, const std::source_location& where);
  void average_gradients(const std::source_location& where) const;

  PipelineStage stage_;
  Schedule1F1BOptions options_;
};

}  // namespace retinue
