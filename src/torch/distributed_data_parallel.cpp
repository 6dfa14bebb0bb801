#include "retinue/torch/distributed_data_parallel.h"

#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/embedding.h>

#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_set>

#include "retinue/base/error.h"
#include "retinue/ipc/step_count.h"
#include "retinue/torch/divergence.h"
#include "torch/gradient_reducer.h"
#include "torch/tensor_backend.h"

namespace retinue {
namespace {

constexpr std::size_t kBroadcastBytes = std::size_t{250} << 20;  // PyTorch's unit for parameters and buffers

/// Joins a forward's outputs in one node of the graph, so that backward from any of them reaches the parameters of all:
/// else those of an output that the loss does not use would never be ready.
struct JoinOutputs : torch::autograd::Function<JoinOutputs> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, at::TensorList outputs) {
    context->set_materialize_grads(false);
    torch::autograd::variable_list copies;
    for (const at::Tensor& output : outputs) copies.push_back(output.clone());
    return copies;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return gradients;
  }
};

void refuse_sparse_gradients(torch::nn::Module& module) {
  for (const auto& item : module.named_modules("", /*include_self=*/true)) {
    const auto* embedding = dynamic_cast<const torch::nn::EmbeddingImpl*>(item.value().get());
    const auto* bag = dynamic_cast<const torch::nn::EmbeddingBagImpl*>(item.value().get());
    if ((embedding && embedding->options.sparse()) || (bag && bag->options.sparse()))
      throw UsageError(c10::str("DistributedDataParallel: the gradients of module \"", item.key(),
                                "\" are sparse, which is not handled; make it with sparse(false)"));
  }
}

/// Trainable parameters, each once however many modules share it.
void collect_parameters(torch::nn::Module& module, c10d::ProcessGroup& group, GradientReducerOptions& found) {
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& parameter = item.value();
    if (!parameter.requires_grad() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    if (!parameter.device().is_cpu() && TensorBackend::of(group, parameter) != nullptr)
      throw UsageError(c10::str("DistributedDataParallel: parameter \"", item.key(), "\" is on ",
                                parameter.device().str(),
                                ", but the group handles CPU tensors; with backend \"cpu:shm,cuda:nccl\" also those "
                                "of GPUs"));
    found.parameters.push_back(parameter);
    found.names.push_back(item.key());
  }
  if (found.parameters.empty())
    throw UsageError("DistributedDataParallel: the module has no parameter that requires a gradient");
}

}  // namespace

class DataParallelCore::Impl {
 public:
  Impl(torch::nn::Module& module, ProcessGroup group, DistributedDataParallelOptions options,
       const std::source_location& where)
      : group_(std::move(group)), options_(options), where_(where) {
    if (!group_) throw UsageError("DistributedDataParallel: the process group is null");
    if (options_.bucket_cap_mb == 0) throw UsageError("DistributedDataParallel: bucket_cap_mb must be at least 1");
    GradientReducerOptions reducing{.parameters = {},
                                    .names = {},
                                    .bucket_cap_mb = options_.bucket_cap_mb,
                                    .find_unused_parameters = options_.find_unused_parameters,
                                    .gradient_as_bucket_view = options_.gradient_as_bucket_view};
    collect_parameters(module, *group_, reducing);
    refuse_sparse_gradients(module);
    if (options_.check_divergence_every_n_steps != 0) {
      divergence_check_.emplace(group_, DivergenceOptions{.every_n_steps = options_.check_divergence_every_n_steps});
      for (const auto& item : module.named_parameters()) compared_.insert(item.key(), item.value());
    }
    buffers_ = module.buffers();
    if (group_->getSize() == 1) return;
    c10d::verify_params_across_processes(group_, reducing.parameters, std::nullopt);
    copy_state_of_rank_0(module);
    reducer_ = make_c10d_reducer(group_, std::move(reducing));
  }

  void before_forward() {
    const bool is_step = c10::GradMode::is_enabled() && gradient_sync_;
    if (is_step && options_.count_steps) count_step();
    if (!reducer_) return;
    if (is_step) {
      if (divergence_check_) divergence_check_->step(compared_, where_);
      reducer_->prepare_forward();
    }
    if (buffers_stale_ && options_.broadcast_buffers && !buffers_.empty())
      c10d::broadcast_coalesced(group_, buffers_, kBroadcastBytes, 0);
  }

  bool needs_outputs() const { return reducer_ && options_.find_unused_parameters && c10::GradMode::is_enabled(); }

  void after_forward(const std::vector<at::Tensor*>& outputs) {
    // As in PyTorch: passes that train make the ranks' buffers differ; of the others only the first needs rank 0's.
    buffers_stale_ = c10::GradMode::is_enabled() && gradient_sync_;
    if (!reducer_ || !buffers_stale_) return;
    std::vector<at::Tensor> tensors;
    for (at::Tensor* output : outputs) tensors.push_back(*output);
    reducer_->prepare_backward(tensors);
    if (tensors.size() < 2) return;
    tensors = JoinOutputs::apply(at::TensorList(tensors));  // apply looks for tensors in lists of this type only
    for (std::size_t i = 0; i < tensors.size(); ++i) *outputs[i] = tensors[i];
  }

  const ProcessGroup& group() const { return group_; }
  bool set_gradient_sync(bool enabled) { return std::exchange(gradient_sync_, enabled); }

 private:
  void copy_state_of_rank_0(torch::nn::Module& module) {
    std::vector<at::Tensor> state;
    for (const at::Tensor& parameter : module.parameters()) state.push_back(parameter.detach());
    for (const at::Tensor& buffer : buffers_) state.push_back(buffer.detach());
    c10d::broadcast_coalesced(group_, state, kBroadcastBytes, 0);
  }

  ProcessGroup group_;
  DistributedDataParallelOptions options_;
  std::source_location where_;
  std::optional<TensorDivergenceCheck> divergence_check_;
  StateDict compared_;  ///< The module's parameters, where they are compared.
  std::vector<at::Tensor> buffers_;
  std::unique_ptr<GradientReducer> reducer_;  ///< Null in a world of one.
  bool gradient_sync_ = true;
  bool buffers_stale_ = true;
};

DataParallelCore::DataParallelCore(torch::nn::Module& module, ProcessGroup group,
                                   DistributedDataParallelOptions options, std::source_location where)
    : impl_(std::make_unique<Impl>(module, std::move(group), options, where)) {}
DataParallelCore::~DataParallelCore() = default;
DataParallelCore::DataParallelCore(DataParallelCore&&) noexcept = default;
DataParallelCore& DataParallelCore::operator=(DataParallelCore&&) noexcept = default;

void DataParallelCore::before_forward() {
  impl_->before_forward();
}
bool DataParallelCore::needs_outputs() const {
  return impl_->needs_outputs();
}
void DataParallelCore::after_forward(const std::vector<at::Tensor*>& outputs) {
  impl_->after_forward(outputs);
}
const ProcessGroup& DataParallelCore::group() const {
  return impl_->group();
}
bool DataParallelCore::set_gradient_sync(bool enabled) {
  return impl_->set_gradient_sync(enabled);
}

}  // namespace retinue
