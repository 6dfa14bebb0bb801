#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "retinue/ipc/job_memory.h"

namespace retinue {

/// A tensor with unspecified contents whose storage is a block of job memory: collectives on it copy nothing.
///
/// The block is freed when the last tensor that shares the storage is gone.
/// Errors: UsageError without a running `Runtime`, or for a device other than the CPU; SharedMemoryExhausted.
/// Cost: a microsecond for pages that the job used before, about a second per 3 GB for new ones: make it once, reuse
/// it.
at::Tensor shared_empty(at::IntArrayRef sizes, at::TensorOptions options = {});

/// The same in the memory of a job that is named.
at::Tensor shared_empty(at::IntArrayRef sizes, const std::shared_ptr<JobMemory>& memory,
                        at::TensorOptions options = {});

/// Whether the tensor's storage is a block of job memory.
bool is_shared(const at::Tensor& tensor);

}  // namespace retinue
