#include "retinue/torch/model_averaging.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_set>

#include "retinue/base/error.h"
#include "torch/groups/make_group.h"
#include "torch/groups/rank_agreement.h"
#include "torch/parallel/average_tensors.h"

namespace retinue {
namespace {

/// averaged += weight * (current - averaged)
void move_towards(const std::vector<at::Tensor>& averaged, const std::vector<at::Tensor>& current, double weight) {
  const c10::NoGradGuard no_grad;
  if (averaged.front().is_floating_point() || averaged.front().is_complex()) {
    at::_foreach_lerp_(averaged, current, weight);
    return;
  }
  for (std::size_t i = 0; i < averaged.size(); ++i) averaged[i].copy_(averaged[i] * (1 - weight) + current[i] * weight);
}

struct Pairs {
  std::vector<at::Tensor> averaged;
  std::vector<at::Tensor> current;
};

template <typename Named>
void add_pairs(const char* kind, const Named& averaged, const Named& current, Pairs& pairs) {
  for (const auto& item : averaged) {
    const at::Tensor* const other = current.find(item.key());
    if (other == nullptr || averaged.size() != current.size() || other->sizes() != item.value().sizes())
      throw UsageError(c10::str(
          "AveragedModel: the model has ",
          other == nullptr ? std::string("none") : c10::str("one of shape ", other->sizes(), ", of ", current.size()),
          " in place of ", kind, " \"", item.key(), "\" of shape ", item.value().sizes(), ", of ", averaged.size(),
          ": pass the module that the averages are of"));
    pairs.averaged.push_back(item.value().detach());
    pairs.current.push_back(other->detach().to(item.value().device()));
  }
  if (averaged.size() != current.size())
    throw UsageError(c10::str("AveragedModel: the model has ", current.size(), " ", kind, "s, the averages have none"));
}

void copy_all(const Pairs& pairs) {
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < pairs.averaged.size(); ++i) pairs.averaged[i].copy_(pairs.current[i]);
}

using TypeAndDevice = std::tuple<at::ScalarType, at::DeviceType, int>;
TypeAndDevice type_and_device_of(const at::Tensor& tensor) {
  return {tensor.scalar_type(), tensor.device().type(), tensor.device().index()};
}

/// Makes random numbers go on as if nobody had drawn any.
class KeptGenerator {
 public:
  KeptGenerator() : generator_(at::globalContext().defaultGenerator(at::kCPU)), state_(get()) {}
  ~KeptGenerator() {
    const std::scoped_lock lock(generator_.mutex());
    generator_.set_state(state_);
  }
  KeptGenerator(const KeptGenerator&) = delete;
  KeptGenerator& operator=(const KeptGenerator&) = delete;

 private:
  at::Tensor get() {
    const std::scoped_lock lock(generator_.mutex());
    return generator_.get_state();
  }
  at::Generator generator_;
  at::Tensor state_;
};

}  // namespace

MultiAvgFn get_ema_multi_avg_fn(double decay) {
  if (!(decay >= 0 && decay <= 1))
    throw UsageError(c10::str("get_ema_multi_avg_fn: the decay is ", decay, ": it must be between 0 and 1"));
  return [decay](const std::vector<at::Tensor>& averaged, const std::vector<at::Tensor>& current, std::int64_t) {
    move_towards(averaged, current, 1 - decay);
  };
}

MultiAvgFn get_swa_multi_avg_fn() {
  return [](const std::vector<at::Tensor>& averaged, const std::vector<at::Tensor>& current, std::int64_t count) {
    move_towards(averaged, current, 1.0 / static_cast<double>(count + 1));
  };
}

AveragedModelBase::AveragedModelBase(std::shared_ptr<torch::nn::Module> averaged, const torch::nn::Module& model,
                                     AveragedModelOptions options)
    : averaged_(std::move(averaged)), options_(std::move(options)) {
  if (averaged_.get() == &model)
    throw UsageError("AveragedModel: the model and the module of its averages are the same; pass another one");
  if (!options_.multi_avg_fn) options_.multi_avg_fn = get_swa_multi_avg_fn();
  register_module("module", averaged_);
  n_averaged = register_buffer("n_averaged", at::tensor(0, at::kLong));
  Pairs all;
  add_pairs("parameter", averaged_->named_parameters(), model.named_parameters(), all);
  add_pairs("buffer", averaged_->named_buffers(), model.named_buffers(), all);
  copy_all(all);
}

std::shared_ptr<torch::nn::Module> AveragedModelBase::clone_of(const torch::nn::Module& model) {
  const KeptGenerator kept;  // clone() initialises each module first.
  try {
    return model.clone();
  } catch (const c10::Error& error) {
    throw UsageError(
        c10::str("AveragedModel: the model can't be cloned: derive it from torch::nn::Cloneable, or pass a "
                 "second module, AveragedModel(net, make_net()); LibTorch says: ",
                 error.what_without_backtrace()));
  }
}

void AveragedModelBase::update_parameters(const torch::nn::Module& model) {
  Pairs averages;
  Pairs copies;
  add_pairs("parameter", averaged_->named_parameters(), model.named_parameters(), averages);
  add_pairs("buffer", averaged_->named_buffers(), model.named_buffers(), options_.use_buffers ? averages : copies);
  copy_all(copies);
  const auto count = n_averaged.item<std::int64_t>();
  if (count == 0) {
    copy_all(averages);
  } else {
    std::map<TypeAndDevice, Pairs> groups;
    for (std::size_t i = 0; i < averages.averaged.size(); ++i) {
      Pairs& group = groups[type_and_device_of(averages.averaged[i])];
      group.averaged.push_back(averages.averaged[i]);
      group.current.push_back(averages.current[i].to(averages.averaged[i].scalar_type()));
    }
    for (const auto& [type, group] : groups) options_.multi_avg_fn(group.averaged, group.current, count);
  }
  n_averaged += 1;
}

PeriodicModelAverager::PeriodicModelAverager(ProcessGroup group, PeriodicModelAveragerOptions options)
    : group_(std::move(group)), options_(options) {
  checked_group("PeriodicModelAverager", group_);
  if (options.period < 1 || options.warmup_steps < 0)
    throw UsageError(c10::str("PeriodicModelAverager: period is ", options.period, " and warmup_steps ",
                              options.warmup_steps, ": period must be 1 or more, and warmup_steps not negative"));
}

bool PeriodicModelAverager::average_parameters(const std::vector<at::Tensor>& parameters, std::source_location where) {
  const std::int64_t own_step = step++;
  const std::int64_t since = own_step - options_.warmup_steps;
  if (since < 0 || since % options_.period != 0) return false;
  std::vector<at::Tensor> tensors;
  std::unordered_set<const c10::TensorImpl*> seen;
  std::vector<std::int64_t> told{own_step, 0, 0};
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.defined() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    tensors.push_back(parameter);
    told[1] += 1;
    told[2] += parameter.numel();
  }
  const RankNumbers all = agree("PeriodicModelAverager", group_, told, {}, where);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw UsageError(c10::str("PeriodicModelAverager: rank 0 averages ", all[0][1], " parameters of ", all[0][2],
                                " elements in step ", all[0][0], ", but rank ", rank, " averages ", all[rank][1],
                                " of ", all[rank][2], " in step ", all[rank][0],
                                ": call it on all ranks after each step, with the same parameters"));
  average_over_ranks(tensors, group_, where);
  return true;
}

}  // namespace retinue
