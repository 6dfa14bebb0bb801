#pragma once
// What differs between the versions of LibTorch that this layer is made for, 2.12 to 2.15
// (cmake/RetinueDependencies.cmake). No other file asks for a version.

#include <torch/version.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#define RETINUE_LIBTORCH_IS_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if RETINUE_LIBTORCH_IS_AT_LEAST(2, 13)
#include <torch/csrc/autograd/node.h>
#else
#include <torch/csrc/autograd/function.h>

#include <memory>
#endif

namespace retinue::libtorch {

#if RETINUE_LIBTORCH_IS_AT_LEAST(2, 13)

using NodePtr = c10::intrusive_ptr<torch::autograd::Node>;

inline constexpr auto kAllGatherSingle = &c10d::ProcessGroup::all_gather_single;
inline constexpr auto kAllGatherSingleCoalesced = &c10d::ProcessGroup::all_gather_single_coalesced;
inline constexpr auto kReduceScatterSingle = &c10d::ProcessGroup::reduce_scatter_single;
inline constexpr auto kReduceScatterSingleCoalesced = &c10d::ProcessGroup::reduce_scatter_single_coalesced;
inline constexpr auto kAllToAllSingle = &c10d::ProcessGroup::all_to_all_single;

inline bool has_backend(c10d::ProcessGroup& group, c10::DeviceType device) {
  return group.hasBackendForDeviceType(device);
}

using PreMulSumSupplement = c10d::PreMulSumSupplement;
inline constexpr const char* kMakePremulSum = "c10d::makePreMulSum(factor)";

template <class Factor>
c10d::ReduceOp make_premul_sum(const Factor& factor) {
  return c10d::makePreMulSum(factor);
}

#else

using NodePtr = std::shared_ptr<torch::autograd::Node>;

inline constexpr auto kAllGatherSingle = &c10d::ProcessGroup::_allgather_base;
inline constexpr auto kAllGatherSingleCoalesced = &c10d::ProcessGroup::allgather_into_tensor_coalesced;
inline constexpr auto kReduceScatterSingle = &c10d::ProcessGroup::_reduce_scatter_base;
inline constexpr auto kReduceScatterSingleCoalesced = &c10d::ProcessGroup::reduce_scatter_tensor_coalesced;
inline constexpr auto kAllToAllSingle = &c10d::ProcessGroup::alltoall_base;

inline bool has_backend(c10d::ProcessGroup& group, c10::DeviceType device) {
  for (const c10::Device& served : group.getDeviceTypes())
    if (served.type() == device) return true;
  return false;
}

using PreMulSumSupplement = c10d::NCCLPreMulSumSupplement;
inline constexpr const char* kMakePremulSum = "c10d::makeNCCLPreMulSum(factor)";

template <class Factor>
c10d::ReduceOp make_premul_sum(const Factor& factor) {
  return c10d::makeNCCLPreMulSum(factor);
}

#endif

}  // namespace retinue::libtorch
