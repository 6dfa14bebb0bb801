#pragma once
// What differs between the versions of LibTorch that this layer is made for, 2.12 to 2.15
// (cmake/RetinueDependencies.cmake). No other file asks for a version.

#include <torch/version.h>
#include <memory>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#define RETINUE_LIBTORCH_IS_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if RETINUE_LIBTORCH_IS_AT_LEAST(2, 13)
#include <torch/csrc/autograd/node.h>
#else
#include <torch/csrc/autograd/function.h>
#endif

namespace retinue::libtorch {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

#if RETINUE_LIBTORCH_IS_AT_LEAST(2, 13)

using NodePtr = c10::intrusive_ptr<torch::autograd::Node>;
using PreMulSumSupplement = c10d::PreMulSumSupplement;
inline constexpr const char* kMakePremulSum = "c10d::makePreMulSum(factor)";

template <class Factor>
c10d::ReduceOp make_premul_sum(const Factor& factor) {
  return c10d::makePreMulSum(factor);
}

inline bool has_backend(c10d::ProcessGroup& group, c10::DeviceType device) {
  return group.hasBackendForDeviceType(device);
}

inline WorkPtr all_gather_single(c10d::ProcessGroup& group, at::Tensor& output, at::Tensor& input,
                                 const c10d::AllgatherOptions& options) {
  return group.all_gather_single(output, input, options);
}

inline WorkPtr all_gather_single_coalesced(c10d::ProcessGroup& group, std::vector<at::Tensor>& outputs,
                                           std::vector<at::Tensor>& inputs) {
  return group.all_gather_single_coalesced(outputs, inputs);
}

inline WorkPtr reduce_scatter_single_coalesced(c10d::ProcessGroup& group, std::vector<at::Tensor>& outputs,
                                               std::vector<at::Tensor>& inputs) {
  return group.reduce_scatter_single_coalesced(outputs, inputs);
}

inline WorkPtr reduce_scatter_single(c10d::ProcessGroup& group, at::Tensor& output, at::Tensor& input,
                                     const c10d::ReduceScatterOptions& options) {
  return group.reduce_scatter_single(output, input, options);
}

inline WorkPtr all_to_all_single(c10d::ProcessGroup& group, at::Tensor& output, at::Tensor& input,
                                 std::vector<std::int64_t>& output_splits, std::vector<std::int64_t>& input_splits,
                                 const c10d::AllToAllOptions& options) {
  return group.all_to_all_single(output, input, output_splits, input_splits, options);
}

#else

using NodePtr = std::shared_ptr<torch::autograd::Node>;
using PreMulSumSupplement = c10d::NCCLPreMulSumSupplement;
inline constexpr const char* kMakePremulSum = "c10d::makeNCCLPreMulSum(factor)";

template <class Factor>
c10d::ReduceOp make_premul_sum(const Factor& factor) {
  return c10d::makeNCCLPreMulSum(factor);
}

inline bool has_backend(c10d::ProcessGroup& group, c10::DeviceType device) {
  for (const c10::Device& served : group.getDeviceTypes())
    if (served.type() == device) return true;
  return false;
}

inline WorkPtr all_gather_single(c10d::ProcessGroup& group, at::Tensor& output, at::Tensor& input,
                                 const c10d::AllgatherOptions& options) {
  return group._allgather_base(output, input, options);
}

inline WorkPtr all_gather_single_coalesced(c10d::ProcessGroup& group, std::vector<at::Tensor>& outputs,
                                           std::vector<at::Tensor>& inputs) {
  return group.allgather_into_tensor_coalesced(outputs, inputs);
}

inline WorkPtr reduce_scatter_single_coalesced(c10d::ProcessGroup& group, std::vector<at::Tensor>& outputs,
                                               std::vector<at::Tensor>& inputs) {
  return group.reduce_scatter_tensor_coalesced(outputs, inputs);
}

inline WorkPtr reduce_scatter_single(c10d::ProcessGroup& group, at::Tensor& output, at::Tensor& input,
                                     const c10d::ReduceScatterOptions& options) {
  return group._reduce_scatter_base(output, input, options);
}

inline WorkPtr all_to_all_single(c10d::ProcessGroup& group, at::Tensor& output, at::Tensor& input,
                                 std::vector<std::int64_t>& output_splits, std::vector<std::int64_t>& input_splits,
                                 const c10d::AllToAllOptions& options) {
  return group.alltoall_base(output, input, output_splits, input_splits, options);
}

#endif

}  // namespace retinue::libtorch
