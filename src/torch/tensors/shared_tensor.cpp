#include "retinue/torch/shared_tensor.h"

#include <ATen/EmptyTensor.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>
#include <torch/optim.h>

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "retinue/base/error.h"
#include "torch/tensors/cuda_storage.h"
#include "torch/tensors/shared_storage.h"

namespace retinue {
namespace {

/// The tensors in which a tensor's numbers lie, without its gradient; none for one that job memory cannot hold.
std::vector<at::Tensor> parts_of(const at::Tensor& tensor) {
  if (tensor.is_sparse()) return {tensor._indices(), tensor._values()};
  if (at::sparse_csr::is_sparse_compressed(tensor)) {
    const bool by_rows = tensor.layout() == at::kSparseCsr || tensor.layout() == at::kSparseBsr;
    return by_rows ? std::vector{tensor.crow_indices(), tensor.col_indices(), tensor.values()}
                   : std::vector{tensor.ccol_indices(), tensor.row_indices(), tensor.values()};
  }
  if (tensor.layout() != at::kStrided || !tensor.has_storage() || tensor.is_nested()) return {};
  return {tensor};
}

/// A CUDA tensor's memory can be mapped by others where it lies.
bool is_on_sent_device(const at::Tensor& tensor) {
  return kSendsCuda && tensor.is_cuda();
}

void share_defined(std::initializer_list<at::Tensor> tensors) {
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined()) share_memory_(tensor);
}

template <class State>
bool share_state_of(State* state) {
  if (state == nullptr) return false;
  if constexpr (requires { state->sum(); }) {
    share_defined({state->sum()});
  } else if constexpr (requires { state->grad_avg(); }) {
    share_defined({state->square_avg(), state->momentum_buffer(), state->grad_avg()});
  } else if constexpr (requires { state->momentum_buffer(); }) {
    share_defined({state->momentum_buffer()});
  } else {
    share_defined({state->exp_avg(), state->exp_avg_sq(), state->max_exp_avg_sq()});
  }
  return true;
}

/// Whatever an optimizer's state is made of.
template <class... States>
bool share_state(torch::optim::OptimizerParamState& state) {
  return (share_state_of(dynamic_cast<States*>(&state)) || ...);
}

}  // namespace

at::Tensor shared_empty(at::IntArrayRef sizes, const std::shared_ptr<JobMemory>& memory, at::TensorOptions options) {
  if (!options.device().is_cpu())
    throw UsageError(
        c10::str("shared_empty: job memory only holds CPU tensors, but the device is ", options.device().str()));
  if (options.layout() != at::kStrided) throw UsageError("shared_empty: job memory holds dense tensors only");
  std::size_t bytes = options.dtype().itemsize();
  for (const std::int64_t size : sizes) {
    if (size < 0) throw UsageError(c10::str("shared_empty: the size ", size, " is negative"));
    if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(size), &bytes))
      throw UsageError("shared_empty: the tensor's bytes overflow");
  }
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, allocate_shared(memory, bytes), /*allocator=*/nullptr,
                       /*resizable=*/false);
  at::Tensor tensor = at::empty({0}, options.requires_grad(false)).set_(std::move(storage), 0, sizes);
  return tensor.requires_grad_(options.requires_grad());
}

at::Tensor shared_empty(at::IntArrayRef sizes, at::TensorOptions options) {
  return shared_empty(sizes, JobMemory::current(), options);
}

at::Tensor shared_zeros(at::IntArrayRef sizes, at::TensorOptions options) {
  at::Tensor tensor = shared_empty(sizes, options.requires_grad(false));
  return tensor.zero_().requires_grad_(options.requires_grad());
}

at::Tensor shared_empty_like(const at::Tensor& tensor) {
  return shared_empty(tensor.sizes(), at::TensorOptions(tensor.dtype()));
}

at::Tensor shared_zeros_like(const at::Tensor& tensor) {
  return shared_zeros(tensor.sizes(), at::TensorOptions(tensor.dtype()));
}

const at::Tensor& share_memory_(const at::Tensor& tensor) {
  if (!tensor.defined()) throw UsageError("share_memory_: the tensor is undefined");
  const std::vector<at::Tensor> parts = parts_of(tensor);
  if (parts.empty())
    throw UsageError(c10::str("share_memory_: a ", tensor.is_nested() ? "nested tensor" : "tensor", " of layout ",
                              tensor.layout(), " on ", tensor.device().str(), " has no storage that can be shared"));
  for (const at::Tensor& part : parts)
    if (!is_on_sent_device(part)) share_storage(part.storage(), JobMemory::current(), [] {});
  if (tensor.is_leaf() && tensor.grad().defined()) share_memory_(tensor.grad());
  return tensor;
}

void share_memory_(torch::nn::Module& module) {
  for (const at::Tensor& parameter : module.parameters())
    if (parameter.defined()) share_memory_(parameter);
  for (const at::Tensor& buffer : module.buffers())
    if (buffer.defined()) share_memory_(buffer);
}

void share_memory_(torch::optim::Optimizer& optimizer) {
  namespace optim = torch::optim;
  for (auto& [parameter, state] : optimizer.state()) {
    const bool is_known = share_state<optim::SGDParamState, optim::AdamParamState, optim::AdamWParamState,
                                      optim::AdagradParamState, optim::RMSpropParamState>(*state);
    if (!is_known)
      throw UsageError(
          "share_memory_: Retinue does not know the state of this optimizer, only those of SGD, Adam, AdamW, Adagrad "
          "and RMSprop: share its tensors one by one");
  }
}

void cuda_ipc_collect() {
  if constexpr (kSendsCuda) collect_cuda_storages();
}

bool is_shared(const at::Tensor& tensor) {
  if (!tensor.defined()) return false;
  const std::vector<at::Tensor> parts = parts_of(tensor);
  return !parts.empty() && std::all_of(parts.begin(), parts.end(), [](const at::Tensor& part) {
    return is_on_sent_device(part) || is_shared(part.storage().data_ptr());
  });
}

bool is_shared(const torch::nn::Module& module) {
  const auto is_fine = [](const at::Tensor& tensor) {
    return !tensor.defined() || tensor.numel() == 0 || is_shared(tensor);
  };
  const auto parameters = module.parameters();
  const auto buffers = module.buffers();
  return std::all_of(parameters.begin(), parameters.end(), is_fine) &&
         std::all_of(buffers.begin(), buffers.end(), is_fine);
}

}  // namespace retinue
