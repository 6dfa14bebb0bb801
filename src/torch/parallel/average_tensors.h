#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>
#include <vector>

#include "retinue/torch/process_group.h"

namespace retinue {

/// Averages tensors over the ranks, in place. All ranks have as many, of the same types and sizes, in the same order.
/// Blocking: one collective for each type.
void average_over_ranks(const std::vector<at::Tensor>& tensors, const ProcessGroup& group,
                        const std::source_location& where);

}  // namespace retinue
