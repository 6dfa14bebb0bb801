#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "retinue/base/error.h"
#include "retinue/store/store.h"

/// CUDA tensors of a group by LibTorch's own NCCL backend (src/torch/cuda/), which builds without RETINUE_CUDA refuse.
namespace retinue {

#ifdef RETINUE_CUDA
/// Why there is no NCCL in this process, and what to do; empty where there is.
std::string why_no_nccl();

/// A backend for the CUDA tensors of a group. Its ranks connect in its first call, on the device of that call's
/// tensors, and find each other by the store, which it keeps. Errors: c10::Error where why_no_nccl().
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(std::shared_ptr<Store> store, int rank, int size,
                                                    std::chrono::milliseconds timeout, const std::string& group_name);
#else
inline std::string why_no_nccl() {
  return "this build of Retinue has no CUDA: build it with a CUDA build of LibTorch (RETINUE_CUDA)";
}

inline c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const std::shared_ptr<Store>& /*store*/, int /*rank*/,
                                                           int /*size*/, std::chrono::milliseconds /*timeout*/,
                                                           const std::string& /*group_name*/) {
  throw UsageError("nccl: " + why_no_nccl());
}
#endif

}  // namespace retinue
