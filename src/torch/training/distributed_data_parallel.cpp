#include "retinue/torch/distributed_data_parallel.h"

#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <unordered_set>

#include "retinue/base/error.h"
#include "retinue/ipc/step_count.h"
#include "retinue/torch/divergence.h"
#include "torch/backend/tensor_backend.h"
#include "torch/training/gradient_reducer.h"
#include "torch/training/module_comparison.h"

namespace retinue {
namespace {

constexpr std::size_t kBroadcastBytes = std::size_t{250} << 20;  // PyTorch's unit for parameters and buffers

/// Parameters, each once, however many modules share it.
std::vector<GradientReducerOptions::Parameter> collect_parameters(const torch::nn::Module& module) {
  std::vector<GradientReducerOptions::Parameter> found;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : module.named_parameters())
    if (seen.insert(item.value().unsafeGetTensorImpl()).second)
      found.push_back({.name = item.key(), .tensor = item.value()});
  return found;
}

/// A module's own parameters as they lie there: LibTorch's functions copy them with their names, which takes ten times
/// as long, in each step.
struct OwnParameters : torch::nn::Module {
  static const auto& of(const torch::nn::Module& module) { return module.*&OwnParameters::parameters_; }
};

using Identities = std::vector<const c10::TensorImpl*>;

void add_identities(const torch::nn::Module& module, Identities& found) {
  for (const auto& item : OwnParameters::of(module))
    if (item.value().defined()) found.push_back(item.value().unsafeGetTensorImpl());
  for (const auto& child : module.children()) add_identities(*child, found);
}

/// Tells whether a module has the parameters that it had, for as long as those live.
Identities identities_of(const torch::nn::Module& module, std::size_t expected = 0) {
  Identities found;
  found.reserve(expected);
  add_identities(module, found);
  return found;
}

void refuse_other_devices(const std::vector<GradientReducerOptions::Parameter>& parameters, c10d::ProcessGroup& group) {
  for (const auto& [name, tensor] : parameters)
    if (tensor.requires_grad() && !tensor.device().is_cpu() && TensorBackend::of(group, tensor) != nullptr)
      throw UsageError(c10::str("DistributedDataParallel: parameter \"", name, "\" is on ", tensor.device().str(),
                                ", but the group supports only CPU tensors; with backend \"cpu:shm,cuda:nccl\" it also "
                                "supports CUDA tensors"));
}

void require_trainable(const std::vector<GradientReducerOptions::Parameter>& parameters) {
  if (std::ranges::none_of(parameters, [](const auto& parameter) { return parameter.tensor.requires_grad(); }))
    throw UsageError("DistributedDataParallel: the module has no parameter that requires a gradient");
}

}  // namespace

class DataParallelCore::Impl {
 public:
  Impl(torch::nn::Module& module, ProcessGroup group, DistributedDataParallelOptions options,
       const std::source_location& where)
      : module_(module), group_(std::move(group)), options_(options), where_(where), hooked_(identities_of(module)) {
    if (!group_) throw UsageError("DistributedDataParallel: the process group is null");
    if (options_.bucket_cap_mb == 0) throw UsageError("DistributedDataParallel: bucket_cap_mb must be at least 1");
    // First: what is refused below is then refused on all ranks.
    if (group_->getSize() > 1) check_same_structure(module, group_, where);
    GradientReducerOptions reducing{.parameters = collect_parameters(module),
                                    .changed_parameters = [this] { return changed_parameters(); },
                                    .bucket_cap_mb = options_.bucket_cap_mb,
                                    .find_unused_parameters = options_.find_unused_parameters,
                                    .before = [this] { before_averaging(); },
                                    .after = [this] { copy_buffers_of_rank_0(); },
                                    .where = where};
    refuse_other_devices(reducing.parameters, *group_);
    require_trainable(reducing.parameters);
    if (options_.check_divergence_every_n_steps != 0) {
      divergence_check_.emplace(group_, DivergenceOptions{.every_n_steps = options_.check_divergence_every_n_steps});
      for (const auto& item : module.named_parameters()) compared_.insert(item.key(), item.value());
    }
    buffers_ = module.buffers();
    if (group_->getSize() > 1) copy_state_of_rank_0(module);
    reducer_ = std::make_unique<GradientReducer>(group_, std::move(reducing));
  }

  const ProcessGroup& group() const { return group_; }
  GradientReducer& reducer() { return *reducer_; }
  bool is_training() const { return module_.is_training(); }

  NamedParameters named_parameters() const {
    NamedParameters named;
    for (auto& [name, tensor] : collect_parameters(module_)) named.insert(std::move(name), std::move(tensor));
    return named;
  }

 private:
  std::optional<std::vector<GradientReducerOptions::Parameter>> changed_parameters() const {
    if (identities_of(module_, hooked_.size()) == hooked_) return std::nullopt;
    return collect_parameters(module_);
  }

  void before_averaging() {
    if (options_.count_steps) count_step();
    if (divergence_check_ && group_->getSize() > 1) divergence_check_->step(compared_, where_);
  }

  void copy_state_of_rank_0(torch::nn::Module& module) {
    std::vector<at::Tensor> state;
    for (const at::Tensor& parameter : module.parameters()) state.push_back(parameter.detach());
    for (const at::Tensor& buffer : buffers_) state.push_back(buffer.detach());
    c10d::broadcast_coalesced(group_, state, kBroadcastBytes, 0);
  }

  void copy_buffers_of_rank_0() {
    if (group_->getSize() == 1 || !options_.broadcast_buffers || buffers_.empty()) return;
    // Another backward through the same graph takes the buffers for unchanged: it needs none of their contents.
    std::vector<at::Tensor> contents;
    for (const at::Tensor& buffer : buffers_) contents.push_back(buffer.variable_data());
    c10d::broadcast_coalesced(group_, contents, kBroadcastBytes, 0);
  }

  torch::nn::Module& module_;  ///< DistributedDataParallel holds it.
  ProcessGroup group_;
  DistributedDataParallelOptions options_;
  std::source_location where_;
  Identities hooked_;  ///< Of the parameters that the reducer has.
  std::optional<TensorDivergenceCheck> divergence_check_;
  StateDict compared_;  ///< The module's parameters, where they are compared.
  std::vector<at::Tensor> buffers_;
  std::unique_ptr<GradientReducer> reducer_;
};

DataParallelCore::DataParallelCore(torch::nn::Module& module, ProcessGroup group,
                                   DistributedDataParallelOptions options, std::source_location where)
    : impl_(std::make_unique<Impl>(module, std::move(group), options, where)) {}
DataParallelCore::~DataParallelCore() = default;
DataParallelCore::DataParallelCore(DataParallelCore&&) noexcept = default;
DataParallelCore& DataParallelCore::operator=(DataParallelCore&&) noexcept = default;

void DataParallelCore::before_forward() {
  if (c10::GradMode::is_enabled()) impl_->reducer().note_forward(impl_->is_training());
}
void DataParallelCore::forward_failed() {
  if (c10::GradMode::is_enabled()) impl_->reducer().forget_forward(impl_->is_training());
}
const ProcessGroup& DataParallelCore::group() const {
  return impl_->group();
}
DataParallelCore::NamedParameters DataParallelCore::named_parameters() const {
  return impl_->named_parameters();
}
bool DataParallelCore::set_gradient_sync(bool enabled) {
  return impl_->reducer().set_sync(enabled);
}

}  // namespace retinue
