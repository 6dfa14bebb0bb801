#include "torch/groups/nccl_backend.h"

#include <c10/cuda/CUDAFunctions.h>

#include <utility>

// LibTorch's CUDA build has it, and says so only to itself.
#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "retinue/torch/c10d_store.h"

namespace retinue {

std::string why_no_nccl() {
  if (c10::cuda::device_count() > 0) return {};
  return "LibTorch finds no CUDA device: check CUDA_VISIBLE_DEVICES, and whether nvidia-smi lists a device";
}

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(std::shared_ptr<Store> store, int rank, int size,
                                                    std::chrono::milliseconds timeout, const std::string& group_name) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  options->group_name = group_name;
  const c10::intrusive_ptr<c10d::Store> meeting = to_c10d_store(std::move(store));
  meeting->setTimeout(timeout);
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(meeting, rank, size, std::move(options));
}

}  // namespace retinue
