#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <source_location>
#include <string>

#include "retinue/collective/divergence.h"
#include "retinue/torch/process_group.h"
#include "retinue/torch/state_dict.h"

/// Checks that tensors are the same on all ranks: check_same() and DivergenceCheck (retinue/collective/divergence.h)
/// for named tensors. Elements are compared in the order of their indices, in any memory layout; those on other devices
/// are copied to the host.
///
/// Blocking, after an error, cost: as there. All ranks call it, in order with their other calls of the group.
/// Errors: DataDivergence, a CollectiveMismatch, on all ranks; it names the first tensor whose bytes differ, and the
/// ranks. UsageError for a null group, for a group of a backend that isn't Retinue's, and for undefined, sparse or
/// quantized tensors, which count as missing on the other ranks. Also the errors of the collectives.
namespace retinue {

void check_same(const StateDict& tensors, const ProcessGroup& group,
                std::source_location where = std::source_location::current());
/// Compares the module's parameters. Buffers, such as batch norm's statistics, may differ between ranks and are not
/// compared; state_dict(module) has both.
void check_same(const torch::nn::Module& module, const ProcessGroup& group,
                std::source_location where = std::source_location::current());
void check_same(const std::string& name, const at::Tensor& tensor, const ProcessGroup& group,
                std::source_location where = std::source_location::current());

/// A check_same() in every n-th step of a loop, the first step included. All ranks must do the same number of steps.
class TensorDivergenceCheck {
 public:
  /// Makes a check. Errors: UsageError for 0 steps, and for groups as above.
  explicit TensorDivergenceCheck(ProcessGroup group, DivergenceOptions options = {});

  /// Returns whether this step compared.
  bool step(const torch::nn::Module& module, std::source_location where = std::source_location::current());
  bool step(const StateDict& tensors, std::source_location where = std::source_location::current());

 private:
  ProcessGroup group_;
  DivergenceSteps steps_;
};

}  // namespace retinue
