#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

namespace retinue {

/// Errors: UsageError where tensors that a call writes to share memory, which names their places in the list, or where
/// one of them has elements that do. Cost: where their memory is interleaved, a pass over a mask of it.
void check_no_overlap(std::string_view call, at::TensorList written);

}  // namespace retinue
