#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <utility>
#include <vector>

#include "retinue/torch/process_group.h"

namespace retinue {

/// Changes averages by current values, in place: tensors of one type and device, and how many models were averaged
/// before.
using MultiAvgFn = std::function<void(const std::vector<at::Tensor>& averaged, const std::vector<at::Tensor>& current,
                                      std::int64_t num_averaged)>;

/// Returns torch.optim.swa_utils.get_ema_multi_avg_fn(): averaged = decay * averaged + (1 - decay) * current.
/// Errors: UsageError for a decay that isn't in [0, 1].
MultiAvgFn get_ema_multi_avg_fn(double decay = 0.999);
/// Returns torch.optim.swa_utils.get_swa_multi_avg_fn(): the mean of all models.
MultiAvgFn get_swa_multi_avg_fn();

struct AveragedModelOptions {
  MultiAvgFn multi_avg_fn = get_swa_multi_avg_fn();
  bool use_buffers = false;  ///< Averages buffers too; otherwise they are copied.
};

/// The part of AveragedModel that is independent of the module's type.
class AveragedModelBase : public torch::nn::Module {
 public:
  /// Averages the model's parameters into the module. The first call copies them. All ranks of a group that have the
  /// same parameters compute the same averages, without waiting.
  /// Errors: UsageError, before anything is changed, if the model's parameters or buffers have other names or shapes.
  void update_parameters(const torch::nn::Module& model);
  template <class Model>
  void update_parameters(const torch::nn::ModuleHolder<Model>& model) {
    update_parameters(*model);
  }

  at::Tensor n_averaged;  ///< How many models were averaged: a buffer of type long, as in PyTorch.

 protected:
  AveragedModelBase(std::shared_ptr<torch::nn::Module> averaged, const torch::nn::Module& model,
                    AveragedModelOptions options);
  /// Returns a clone; random numbers that come later are as without it. Errors: UsageError for a module without
  /// clone().
  static std::shared_ptr<torch::nn::Module> clone_of(const torch::nn::Module& model);

 private:
  std::shared_ptr<torch::nn::Module> averaged_;
  AveragedModelOptions options_;
};

/// torch.optim.swa_utils.AveragedModel: a copy of a module whose parameters are averages of the module's at several
/// steps, by default their mean, or an exponential moving average (EMA).
///
///   AveragedModel ema(net, {.multi_avg_fn = get_ema_multi_avg_fn(0.999)});
///   ... optimizer.step(); ema.update_parameters(net); ... ema(x)
///
/// Its state dict has PyTorch's names: `module.` before those of the module, and `n_averaged`.
template <class Model>
class AveragedModel : public AveragedModelBase {
 public:
  /// Copies the module by its clone(), which modules of LibTorch have. Errors: UsageError for one that doesn't override
  /// it: pass a second module then.
  explicit AveragedModel(const std::shared_ptr<Model>& model, AveragedModelOptions options = {})
      : AveragedModel(model, std::dynamic_pointer_cast<Model>(clone_of(*model)), std::move(options)) {}
  /// Keeps the averages in `averaged`, another module of the same parameters and buffers, which get the model's values.
  AveragedModel(const std::shared_ptr<Model>& model, std::shared_ptr<Model> averaged, AveragedModelOptions options = {})
      : AveragedModelBase(averaged, *model, std::move(options)), module_(std::move(averaged)) {}
  explicit AveragedModel(const torch::nn::ModuleHolder<Model>& model, AveragedModelOptions options = {})
      : AveragedModel(model.ptr(), std::move(options)) {}
  AveragedModel(const torch::nn::ModuleHolder<Model>& model, const torch::nn::ModuleHolder<Model>& averaged,
                AveragedModelOptions options = {})
      : AveragedModel(model.ptr(), averaged.ptr(), std::move(options)) {}

  template <typename... Inputs>
  auto forward(Inputs&&... inputs) {
    return module_->forward(std::forward<Inputs>(inputs)...);
  }
  template <typename... Inputs>
  auto operator()(Inputs&&... inputs) {
    return forward(std::forward<Inputs>(inputs)...);
  }

  Model& module() const { return *module_; }
  Model* operator->() const { return module_.get(); }

 private:
  std::shared_ptr<Model> module_;
};

struct PeriodicModelAveragerOptions {
  std::int64_t period = 4;        ///< In steps.
  std::int64_t warmup_steps = 0;  ///< In which nothing is averaged, such as while DistributedDataParallel averages.
};

/// Local SGD, torch.distributed.algorithms.model_averaging.averagers.PeriodicModelAverager: ranks train on their own,
/// and average their parameters each `period` steps.
class PeriodicModelAverager {
 public:
  /// Errors: UsageError for a period or a number of steps that is out of range, and for a null group.
  PeriodicModelAverager(ProcessGroup group, PeriodicModelAveragerOptions options);

  /// Call it after each step of the optimizer. Step `warmup_steps` and each `period`-th after it sets the parameters to
  /// their averages over the ranks, in place; steps count from 0. Returns whether it did so. Parameters without a
  /// gradient are averaged too; PyTorch leaves them out.
  ///
  /// Blocking: steps that average, until all ranks have come. Errors: UsageError on all ranks if ranks are at different
  /// steps, or have different parameters; PeerLost, TimeoutError. Cost: two collectives, and one for each further type
  /// of parameters.
  bool average_parameters(const std::vector<at::Tensor>& parameters,
                          std::source_location where = std::source_location::current());

  /// How many steps were made. Set it to continue from a checkpoint.
  std::int64_t step = 0;

 private:
  ProcessGroup group_;
  PeriodicModelAveragerOptions options_;
};

}  // namespace retinue
