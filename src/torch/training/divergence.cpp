#include "retinue/torch/divergence.h"

#include <c10/util/StringUtil.h>

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "retinue/base/error.h"
#include "torch/backend/tensor_backend.h"
#include "torch/backend/tensor_buffer.h"
#include "torch/groups/make_group.h"

namespace retinue {
namespace {

TensorBackend& backend_of(const ProcessGroup& group) {
  c10d::ProcessGroup& ranks = checked_group("check_same", group);
  TensorBackend* const backend = TensorBackend::of(ranks);
  if (backend == nullptr)
    throw UsageError(c10::str("check_same: the group's backend is ", ranks.getDefaultBackend()->getBackendName(),
                              ", but only groups with Retinue's backends can compare tensors"));
  return *backend;
}

TensorBuffer read(const std::string& name, const at::Tensor& tensor) {
  const at::Tensor host = tensor.defined() && !tensor.device().is_cpu() ? tensor.cpu() : tensor;
  return {c10::str("check_same: \"", name, "\""), host, TensorBuffer::Access::kRead};
}

/// Of items with key() and value().
template <typename Tensors>
void compare(const ProcessGroup& group, const Tensors& tensors, const std::source_location& where) {
  TensorBackend& backend = backend_of(group);
  const at::NoGradGuard no_grad;
  std::vector<TensorBuffer> buffers;
  std::vector<NamedBytes> parts;
  // What this rank can't compare the others shall not wait for: it counts as nothing.
  std::exception_ptr error;
  for (const auto& item : tensors) {
    parts.push_back({.name = item.key(), .bytes = {}});
    try {
      parts.back().bytes = buffers.emplace_back(read(item.key(), item.value())).part();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  const auto compare_all = [&](Communicator& ranks) { check_same(ranks, parts, where); };
  try {
    backend.use_communicator(compare_all);
  } catch (const DataDivergence&) {
    if (!error) throw;
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace

void check_same(const StateDict& tensors, const ProcessGroup& group, std::source_location where) {
  compare(group, tensors, where);
}

void check_same(const torch::nn::Module& module, const ProcessGroup& group, std::source_location where) {
  compare(group, module.named_parameters(), where);
}

void check_same(const std::string& name, const at::Tensor& tensor, const ProcessGroup& group,
                std::source_location where) {
  StateDict tensors;
  tensors.insert(name, tensor);
  compare(group, tensors, where);
}

TensorDivergenceCheck::TensorDivergenceCheck(ProcessGroup group, DivergenceOptions options)
    : group_(std::move(group)), steps_(options) {
  backend_of(group_);
}

bool TensorDivergenceCheck::step(const torch::nn::Module& module, std::source_location where) {
  if (!steps_.is_next_due()) return false;
  check_same(module, group_, where);
  return true;
}

bool TensorDivergenceCheck::step(const StateDict& tensors, std::source_location where) {
  if (!steps_.is_next_due()) return false;
  check_same(tensors, group_, where);
  return true;
}

}  // namespace retinue
