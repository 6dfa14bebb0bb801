#pragma once

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "retinue/collective/communicator.h"

namespace retinue {

/// Errors: UsageError for a tensor that isn't a sparse one of coordinates on the CPU, and for another reduction than
/// the sum: elements that are not there would count in no other.
void check_sparse(const at::Tensor& tensor, const c10d::ReduceOp& op);

/// Makes a sparse tensor, in place, the coalesced sum of all ranks', with the bits of the serial loop over ranks.
///
/// Blocking: until all have called it. Errors: UsageError, on all ranks, where types or sizes differ; those of the
/// collectives.
void sum_sparse(Communicator& ranks, const at::Tensor& tensor, const CallSite& site);

}  // namespace retinue
