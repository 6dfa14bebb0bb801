#include "retinue/torch/distributed_data_parallel.h"

#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <unordered_set>
#include <utility>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/ipc/step_count.h"
#include "retinue/torch/divergence.h"
#include "torch/backend/tensor_backend.h"
#include "torch/training/gradient_reducer.h"
#include "torch/training/module_comparison.h"
#include "torch/training/shared_parameters.h"

namespace retinue {
namespace {

constexpr std::size_t kBroadcastBytes = std::size_t{250} << 20;  // PyTorch's unit for parameters and buffers

using NameSet = std::unordered_set<std::string>;

/// Parameters, each once, however many modules share it.
std::vector<GradientReducerOptions::Parameter> collect_parameters(const torch::nn::Module& module,
                                                                  const NameSet& ignored) {
  std::vector<GradientReducerOptions::Parameter> found;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : module.named_parameters())
    if (!ignored.contains(item.key()) && seen.insert(item.value().unsafeGetTensorImpl()).second)
      found.push_back({.name = item.key(), .tensor = item.value()});
  return found;
}

/// Errors: UsageError for a name that is neither a parameter's nor a buffer's.
NameSet checked_names(const torch::nn::Module& module, const std::vector<std::string>& names) {
  if (names.empty()) return {};
  const auto parameters = module.named_parameters();
  const auto buffers = module.named_buffers();
  for (const std::string& name : names)
    if (!parameters.contains(name) && !buffers.contains(name))
      throw UsageError(c10::str("DistributedDataParallel: parameters_to_ignore has \"", name,
                                "\", but the module has no parameter or buffer of that name"));
  return {names.begin(), names.end()};
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
      : module_(module),
        group_(std::move(group)),
        options_(std::move(options)),
        where_(where),
        hooked_(identities_of(module)) {
    if (!group_) throw UsageError("DistributedDataParallel: the process group is null");
    refuse_options();
    ignored_ = checked_names(module, options_.parameters_to_ignore);
    const bool connects = group_->getSize() > 1 && options_.init_sync;
    // First: what is refused below is then refused on all ranks.
    if (connects) check_same_structure(module, ignored_, group_, where);
    GradientReducerOptions reducing = reducing_options();
    refuse_other_devices(reducing.parameters, *group_);
    require_trainable(reducing.parameters);
    if (options_.check_divergence_every_n_steps != 0) {
      divergence_check_.emplace(group_, DivergenceOptions{.every_n_steps = options_.check_divergence_every_n_steps});
      for (const auto& [name, tensor] : reducing.parameters) compared_.insert(name, tensor);
    }
    for (const auto& item : module.named_buffers())
      if (!ignored_.contains(item.key())) buffers_.push_back(item.value());
    if (connects) copy_state(reducing.parameters, 0);
    if (options_.share_parameters) share(reducing.parameters);
    reducer_ = std::make_unique<GradientReducer>(group_, std::move(reducing));
  }

  const ProcessGroup& group() const { return group_; }
  GradientReducer& reducer() { return *reducer_; }
  bool is_training() const { return module_.is_training(); }

  void copy_state_of_last() {
    const int last = reducer_->last_in_join();
    if (group_->getSize() > 1) copy_state(collect_parameters(module_, ignored_), last);
  }

  NamedParameters named_parameters() const {
    NamedParameters named;
    for (auto& [name, tensor] : collect_parameters(module_, {})) named.insert(std::move(name), std::move(tensor));
    return named;
  }

 private:
  void refuse_options() const {
    if (options_.bucket_cap_mb == 0) throw UsageError("DistributedDataParallel: bucket_cap_mb must be at least 1");
    if (!options_.share_parameters) return;
    if (options_.hook)
      throw UsageError(
          "DistributedDataParallel: share_parameters and a hook exclude each other: the optimizer averages gradients "
          "that are shared");
    if (options_.reducer == ReducerKind::kC10d)
      throw UsageError("DistributedDataParallel: share_parameters needs the reducer kJobMemory, not kC10d");
  }

  GradientReducerOptions reducing_options() {
    return {.parameters = collect_parameters(module_, ignored_),
            .changed_parameters = [this] { return changed_parameters(); },
            .bucket_cap_mb = options_.bucket_cap_mb,
            .find_unused_parameters = options_.find_unused_parameters,
            .static_graph = options_.static_graph,
            .check_gradients = options_.check_gradients,
            .reducer = options_.reducer,
            .hook = options_.hook,
            .shares_parameters = options_.share_parameters,
            .before = [this](bool is_shadow) { before_averaging(is_shadow); },
            .after = [this] { copy_buffers(); },
            .where = where_};
  }

  std::optional<std::vector<GradientReducerOptions::Parameter>> changed_parameters() const {
    if (identities_of(module_, hooked_.size()) == hooked_) return std::nullopt;
    return collect_parameters(module_, ignored_);
  }

  void share(const std::vector<GradientReducerOptions::Parameter>& parameters) {
    std::vector<at::Tensor> shared;
    for (const auto& [name, tensor] : parameters) shared.push_back(tensor);
    share_parameters(shared, group_, where_);
  }

  void before_averaging(bool is_shadow) {
    if (options_.count_steps && !is_shadow) count_step();
    if (!reducer_->is_in_join() && divergence_check_ && group_->getSize() > 1)
      divergence_check_->step(compared_, where_);
  }

  void copy_state(const std::vector<GradientReducerOptions::Parameter>& parameters, int rank) {
    std::vector<at::Tensor> state;
    for (const auto& [name, tensor] : parameters) state.push_back(tensor.detach());
    for (const at::Tensor& buffer : buffers_) state.push_back(buffer.detach());
    c10d::broadcast_coalesced(group_, state, kBroadcastBytes, rank);
  }

  void copy_buffers() {
    if (group_->getSize() == 1 || !options_.broadcast_buffers || buffers_.empty()) return;
    // Another backward through the same graph takes the buffers for unchanged: it needs none of their contents.
    std::vector<at::Tensor> contents;
    for (const at::Tensor& buffer : buffers_) contents.push_back(buffer.variable_data());
    c10d::broadcast_coalesced(group_, contents, kBroadcastBytes, reducer_->first_that_goes_on());
  }

  torch::nn::Module& module_;  ///< DistributedDataParallel holds it.
  ProcessGroup group_;
  DistributedDataParallelOptions options_;
  std::source_location where_;
  NameSet ignored_;
  Identities hooked_;  ///< Of the parameters that the reducer has.
  std::optional<TensorDivergenceCheck> divergence_check_;
  StateDict compared_;  ///< The module's parameters, where they are compared.
  std::vector<at::Tensor> buffers_;
  std::unique_ptr<GradientReducer> reducer_;
};

DataParallelCore::DataParallelCore(torch::nn::Module& module, ProcessGroup group,
                                   DistributedDataParallelOptions options, std::source_location where)
    : impl_(std::make_unique<Impl>(module, std::move(group), std::move(options), where)) {}
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
void DataParallelCore::begin_join(const JoinMode& mode) {
  impl_->reducer().begin_join(mode);
}
void DataParallelCore::end_join() {
  impl_->reducer().end_join();
}
bool DataParallelCore::shadow_backward() {
  return impl_->reducer().shadow_backward();
}
void DataParallelCore::copy_state_of_last() {
  impl_->copy_state_of_last();
}
std::shared_ptr<SharedGradients> DataParallelCore::shared_gradients() const {
  return impl_->reducer().shared_gradients();
}

}  // namespace retinue
