#include <c10/util/StringUtil.h>
#include <torch/nn/modules/container/sequential.h>

#include <map>
#include <memory>
#include <string>

#include "retinue/base/error.h"
#include "retinue/torch/sync_batch_norm.h"
#include "torch/groups/make_group.h"

namespace retinue {

/// Of the batch norms of one module. One that is in several places stays one.
class SyncBatchNormImpl::Conversion {
 public:
  Conversion(const ProcessGroup& group, const std::source_location& where) : group_(group), where_(where) {}

  /// Errors: UsageError for one that can't be replaced.
  void check(const torch::nn::Module& module, const std::string& path) {
    if (is_batch_norm(module)) refuse(path.empty() ? "the module itself is a batch norm" : c10::str(path, " is one"));
    const bool is_sequential = dynamic_cast<const torch::nn::SequentialImpl*>(&module) != nullptr;
    for (const auto& child : module.named_children())
      if (!is_sequential || !is_batch_norm(*child.value()))
        check(*child.value(), path.empty() ? child.key() : c10::str(path, ".", child.key()));
  }

  void convert(torch::nn::Module& module) {
    auto* const sequential = dynamic_cast<torch::nn::SequentialImpl*>(&module);
    std::size_t index = 0;
    for (const auto& child : module.named_children()) {
      if (is_batch_norm(*child.value())) {
        const auto sync = converted(child.value());
        *(sequential->begin() + static_cast<std::ptrdiff_t>(index)) = sync;
        sequential->replace_module(child.key(), sync);
      } else {
        convert(*child.value());
      }
      ++index;
    }
  }

 private:
  static bool is_batch_norm(const torch::nn::Module& module) {
    return dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&module) != nullptr ||
           dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&module) != nullptr ||
           dynamic_cast<const torch::nn::BatchNorm3dImpl*>(&module) != nullptr;
  }

  [[noreturn]] static void refuse(const std::string& what) {
    throw UsageError(c10::str("convert_sync_batchnorm: ", what,
                              ", and not in a torch::nn::Sequential; LibTorch can't replace it there: declare it as "
                              "retinue::SyncBatchNorm, or put it into a Sequential"));
  }

  std::shared_ptr<SyncBatchNormImpl> converted(const std::shared_ptr<torch::nn::Module>& module) {
    std::shared_ptr<SyncBatchNormImpl>& sync = converted_[module.get()];
    if (sync == nullptr) sync = converted_as<torch::nn::BatchNorm1dImpl>(*module);
    if (sync == nullptr) sync = converted_as<torch::nn::BatchNorm2dImpl>(*module);
    if (sync == nullptr) sync = converted_as<torch::nn::BatchNorm3dImpl>(*module);
    return sync;
  }

  template <class BatchNormImpl>
  std::shared_ptr<SyncBatchNormImpl> converted_as(torch::nn::Module& module) const {
    auto* const norm = dynamic_cast<BatchNormImpl*>(&module);
    if (norm == nullptr) return nullptr;
    auto sync = std::make_shared<SyncBatchNormImpl>(norm->options, group_, where_);
    sync->weight = sync->parameters_["weight"] = norm->weight;
    sync->bias = sync->parameters_["bias"] = norm->bias;
    if (norm->options.track_running_stats()) {
      sync->running_mean.set_data(norm->running_mean);
      sync->running_var.set_data(norm->running_var);
      sync->num_batches_tracked.set_data(norm->num_batches_tracked);
    }
    sync->train(norm->is_training());
    return sync;
  }

  const ProcessGroup& group_;
  const std::source_location& where_;
  std::map<const torch::nn::Module*, std::shared_ptr<SyncBatchNormImpl>> converted_;
};

void convert_sync_batchnorm(torch::nn::Module& module, const ProcessGroup& group, std::source_location where) {
  checked_group("convert_sync_batchnorm", group);
  SyncBatchNormImpl::Conversion conversion(group, where);
  conversion.check(module, "");
  conversion.convert(module);
}

}  // namespace retinue
