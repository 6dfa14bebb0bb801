#pragma once

#include <torch/nn/module.h>

#include <source_location>
#include <string>
#include <unordered_set>

#include "retinue/torch/process_group.h"

namespace retinue {

/// Compares what the ranks' modules are made of: names, types, shapes, strides, device types, order and requires_grad
/// of parameters and buffers, each tensor once, but for those with `ignored` names. Values may differ.
///
/// Blocking: all ranks of the group call it. Errors: UsageError, on all ranks, which names the first difference, and
/// the ranks that differ from rank 0.
void check_same_structure(const torch::nn::Module& module, const std::unordered_set<std::string>& ignored,
                          const ProcessGroup& group, std::source_location where);

}  // namespace retinue
