#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <type_traits>

#include "retinue/ipc/archive.h"
#include "retinue/torch/state_dict.h"

/// Makes tensors, modules and state dicts usable as arguments, return values and messages, alone or in any struct,
/// vector, map or tuple that cereal can archive: include this header, and send them.
///
/// A tensor's storage is moved to job memory once, as by share_memory_(), and only its handle travels. The receiver's
/// tensor is the same memory, views of one storage arrive as views of one storage, and a storage that the receiver
/// already has is that storage. Strides, offset, type, requires_grad and .grad of leaves, conjugate and negative bits,
/// sparse and quantised layouts are kept. The indices of a sparse tensor are not checked, unless torch's check of
/// sparse invariants is on: that would cost a pass over them.
///
/// CUDA tensors (if RETINUE_CUDA=ON) stay in place, and the receiver maps their memory. Work queued on the sender's
/// current stream before the send is done before work queued on the receiver's current stream after the receive.
/// Receivers share the memory of the process that allocated it. That process keeps the memory until the last receiver
/// has released it or died, and must live as long; at its end it waits 5 s for them. A rank therefore cannot return a
/// CUDA tensor. A release waits for the process's current stream; the process must itself have waited for other streams
/// that use the tensor.
///
/// Errors: UsageError for a tensor that requires grad and is not a leaf (detach it: a graph stays in its process), for
/// one on another device, and without a running `Runtime`; SharedMemoryExhausted.
namespace retinue::detail {

void write_tensor(ValueOutput& output, const at::Tensor& tensor);
at::Tensor read_tensor(ValueInput& input);

template <class T>
std::enable_if_t<std::is_same_v<T, at::Tensor>> CEREAL_SAVE_FUNCTION_NAME(ValueOutput& output, const T& tensor) {
  write_tensor(output, tensor);
}
template <class T>
std::enable_if_t<std::is_same_v<T, at::Tensor>> CEREAL_LOAD_FUNCTION_NAME(ValueInput& input, T& tensor) {
  tensor = read_tensor(input);
}

/// Writes the parameters, the buffers, and which modules are in training mode.
void write_module(ValueOutput& output, const torch::nn::Module& module);
/// Reads them into a module of the same class. Errors: UsageError, which names what doesn't fit.
void read_module(ValueInput& input, torch::nn::Module& module);

template <class T>
constexpr bool kIsModule = std::is_base_of_v<torch::nn::Module, T>;

template <class T>
std::enable_if_t<kIsModule<T>> CEREAL_SAVE_FUNCTION_NAME(ValueOutput& output, const std::shared_ptr<T>& module) {
  output(module != nullptr);
  if (module != nullptr) write_module(output, *module);
}
template <class T>
std::enable_if_t<kIsModule<T>> CEREAL_LOAD_FUNCTION_NAME(ValueInput& input, std::shared_ptr<T>& module) {
  static_assert(std::is_default_constructible_v<T>,
                "the receiver of a module makes a new one, so its class needs a default constructor; or send "
                "state_dict(module), and load_state_dict() it there");
  bool is_there = false;
  input(is_there);
  module = is_there ? std::make_shared<T>() : nullptr;
  if (module != nullptr) read_module(input, *module);
}

/// For TORCH_MODULE's module holders, which wrap a shared pointer.
template <class T>
std::enable_if_t<std::is_base_of_v<torch::detail::ModuleHolderIndicator, T>> CEREAL_SAVE_FUNCTION_NAME(
    ValueOutput& output, const T& holder) {
  output(holder.is_empty() ? nullptr : holder.ptr());
}
template <class T>
std::enable_if_t<std::is_base_of_v<torch::detail::ModuleHolderIndicator, T>> CEREAL_LOAD_FUNCTION_NAME(
    ValueInput& input, T& holder) {
  std::shared_ptr<typename T::ContainedType> module;
  input(module);
  holder = T(std::move(module));
}

}  // namespace retinue::detail
