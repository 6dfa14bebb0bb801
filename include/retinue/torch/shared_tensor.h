#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <memory>

#include "retinue/ipc/job_memory.h"

namespace retinue {

/// Returns a tensor with unspecified contents whose storage is a block of job memory. Collectives on it copy nothing,
/// and messages carry only its handle.
///
/// The block is freed when the last tensor that shares the storage is gone, in any process.
/// Errors: UsageError without a running `Runtime`, or for a device other than the CPU; SharedMemoryExhausted.
/// Cost: a microsecond for pages that the job used before, about a second per 3 GB for new ones: make it once and reuse
/// it.
at::Tensor shared_empty(at::IntArrayRef sizes, at::TensorOptions options = {});

/// Does the same in the memory of a given job.
at::Tensor shared_empty(at::IntArrayRef sizes, const std::shared_ptr<JobMemory>& memory,
                        at::TensorOptions options = {});

/// Does the same, filled with zeros.
at::Tensor shared_zeros(at::IntArrayRef sizes, at::TensorOptions options = {});
/// Make a tensor with the sizes and the type of `tensor`.
at::Tensor shared_empty_like(const at::Tensor& tensor);
at::Tensor shared_zeros_like(const at::Tensor& tensor);

/// Moves the tensor's storage, with all its views, and the gradient's into job memory. Leaves storage that is already
/// there unchanged, and also CUDA memory if RETINUE_CUDA=ON. Returns the tensor.
/// Threads: no thread may use a tensor of that storage meanwhile.
/// Errors: UsageError without a running `Runtime`, for an undefined tensor, and for one that job memory cannot hold
/// (not on the CPU, opaque, nested); SharedMemoryExhausted.
const at::Tensor& share_memory_(const at::Tensor& tensor);

/// Does the same for all parameters and buffers of a module and its submodules: ranks that get it train one model.
void share_memory_(torch::nn::Module& module);

/// Does the same for the state that a LibTorch optimizer keeps for each parameter, if it exists; before the first step
/// it doesn't. Errors: UsageError also for an optimizer of another kind, and for LBFGS, whose state isn't only tensors.
void share_memory_(torch::optim::Optimizer& optimizer);

/// Releases the CUDA memory that this process sent and that no other process needs any more. That also happens
/// automatically with the next tensor sent, and before LibTorch asks the driver for more memory. Does nothing without
/// RETINUE_CUDA.
void cuda_ipc_collect();

/// Returns whether the tensor's memory is job memory, or CUDA memory that can be sent as it is.
bool is_shared(const at::Tensor& tensor);
/// Returns whether that is true of all parameters and buffers that have memory.
bool is_shared(const torch::nn::Module& module);

/// A guard: during its lifetime, the CPU memory that this thread allocates for tensors is job memory. For example,
/// `SharedAllocation guard; Net net;` makes a shared model.
/// Threads: affects only the thread that made it, not other threads such as LibTorch's. Guards may nest.
/// Errors: UsageError without a running `Runtime`. During its lifetime, allocations throw SharedMemoryExhausted.
class SharedAllocation {
 public:
  SharedAllocation();
  ~SharedAllocation();
  SharedAllocation(const SharedAllocation&) = delete;
  SharedAllocation& operator=(const SharedAllocation&) = delete;
};

}  // namespace retinue
