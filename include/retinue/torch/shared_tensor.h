#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <memory>

#include "retinue/ipc/job_memory.h"

namespace retinue {

/// A tensor with unspecified contents whose storage is a block of job memory: collectives on it copy nothing, and
/// messages carry its handle only.
///
/// The block is freed when the last tensor that shares the storage is gone, in whatever process.
/// Errors: UsageError without a running `Runtime`, or for a device other than the CPU; SharedMemoryExhausted.
/// Cost: a microsecond for pages that the job used before, about a second per 3 GB for new ones: make it once, reuse
/// it.
at::Tensor shared_empty(at::IntArrayRef sizes, at::TensorOptions options = {});

/// The same in the memory of a job that is named.
at::Tensor shared_empty(at::IntArrayRef sizes, const std::shared_ptr<JobMemory>& memory,
                        at::TensorOptions options = {});

/// The same, filled with zeros.
at::Tensor shared_zeros(at::IntArrayRef sizes, at::TensorOptions options = {});
/// With the sizes and the type of `tensor`.
at::Tensor shared_empty_like(const at::Tensor& tensor);
at::Tensor shared_zeros_like(const at::Tensor& tensor);

/// Moves the tensor's storage into job memory, with all views of it, and its gradient's. What is there already is left
/// alone, and so is CUDA memory, where RETINUE_CUDA=ON. Returns the tensor.
/// Threads: none may use a tensor of that storage meanwhile.
/// Errors: UsageError without a running `Runtime`, for an undefined tensor, and for one that job memory cannot hold
/// (not on the CPU, opaque, nested); SharedMemoryExhausted.
const at::Tensor& share_memory_(const at::Tensor& tensor);

/// The same for all parameters and buffers of a module and of those in it: ranks that are given it train one model.
void share_memory_(torch::nn::Module& module);

/// The same for what an optimizer of LibTorch's keeps for each parameter, as far as it is there: before its first step
/// it is not. Errors: UsageError also for an optimizer of another kind, and for LBFGS, whose state is no tensor alone.
void share_memory_(torch::optim::Optimizer& optimizer);

/// Lets go of the CUDA memory that this process sent and that no other one needs any more. Happens by itself with the
/// next tensor that is sent, and before LibTorch asks the driver for more memory. Does nothing without RETINUE_CUDA.
void cuda_ipc_collect();

/// Whether the tensor's memory is job memory, or CUDA memory that can be sent as it is.
bool is_shared(const at::Tensor& tensor);
/// Whether that is so of all parameters and buffers that have memory.
bool is_shared(const torch::nn::Module& module);

/// As long as it lives, the CPU memory that this thread allocates for tensors is job memory:
/// `SharedAllocation guard; Net net;` makes a shared model.
/// Threads: concerns the thread that made it; others, LibTorch's own among them, go on as before. Guards may nest.
/// Errors: UsageError without a running `Runtime`. Inside, SharedMemoryExhausted from what allocates.
class SharedAllocation {
 public:
  SharedAllocation();
  ~SharedAllocation();
  SharedAllocation(const SharedAllocation&) = delete;
  SharedAllocation& operator=(const SharedAllocation&) = delete;
};

}  // namespace retinue
