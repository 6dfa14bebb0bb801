#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <source_location>
#include <string>

#include "retinue/collective/divergence.h"
#include "retinue/torch/process_group.h"
#include "retinue/torch/state_dict.h"

/// Whether tensors are the same on all ranks: check_same() and DivergenceCheck (retinue/collective/divergence.h) of
/// tensors by name. Elements are compared in the order of their indices, however they lie in memory; those on other
/// devices are copied to the host.
///
/// Blocking, after an error, cost: as there. All ranks call it, in order with their other calls of the group.
/// Errors: DataDivergence, a CollectiveMismatch, on all ranks, which names the first tensor whose bytes differ, and the
/// ranks; UsageError for a null group, one of a backend that isn't Retinue's, and tensors that are undefined, sparse or
/// quantized, which are none on the other ranks; those of the collectives.
namespace retinue {

void check_same(const StateDict& tensors, const ProcessGroup& group,
                std::source_location where = std::source_location::current());
/// The module's parameters. Of its buffers, as batch norm's statistics, ranks may have their own: state_dict(module)
/// has both.
void check_same(const torch::nn::Module& module, const ProcessGroup& group,
                std::source_location where = std::source_location::current());
void check_same(const std::string& name, const at::Tensor& tensor, const ProcessGroup& group,
                std::source_location where = std::source_location::current());

/// The same in every n-th of a loop's steps, the first included, where all ranks do the same number of steps.
class TensorDivergenceCheck {
 public:
  /// Errors: UsageError for 0 steps, and for groups as above.
  explicit TensorDivergenceCheck(ProcessGroup group, DivergenceOptions options = {});

  /// Returns whether this step compared.
  bool step(const torch::nn::Module& module, std::source_location where = std::source_location::current());
  bool step(const StateDict& tensors, std::source_location where = std::source_location::current());

 private:
  ProcessGroup group_;
  DivergenceSteps steps_;
};

}  // namespace retinue
