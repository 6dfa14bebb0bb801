#include "torch/optim/optimizer_update.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/zeros_like.h>

#include <tuple>

namespace retinue {
namespace {

using torch::optim::AdamOptions;
using torch::optim::AdamParamState;
using torch::optim::AdamWOptions;
using torch::optim::AdamWParamState;
using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamState;
using torch::optim::SGDOptions;
using torch::optim::SGDParamState;

void make_if_missing(at::Tensor& tensor, const at::Tensor& like) {
  if (!tensor.defined()) tensor = at::zeros_like(like);
}

bool has_amsgrad(OptimizerUpdate::Algorithm algorithm, const OptimizerOptions& options) {
  return algorithm == OptimizerUpdate::Algorithm::kAdam ? static_cast<const AdamOptions&>(options).amsgrad()
                                                        : static_cast<const AdamWOptions&>(options).amsgrad();
}

template <class State>
std::unique_ptr<OptimizerParamState> adam_state(const ElementState& state) {
  auto made = std::make_unique<State>();
  made->step(state.step);
  made->exp_avg(state.first);
  made->exp_avg_sq(state.second);
  made->max_exp_avg_sq(state.third);
  return made;
}

template <class State>
ElementState of_adam(const OptimizerParamState& given) {
  const auto& state = static_cast<const State&>(given);
  return {state.step(), state.exp_avg(), state.exp_avg_sq(), state.max_exp_avg_sq()};
}

/// `kernel`: of Adam or AdamW.
template <class Options, class Kernel>
void update_adam(Kernel kernel, const ElementLists& lists, const OptimizerOptions& given,
                 const std::optional<at::Tensor>& gradient_scale) {
  const auto& options = static_cast<const Options&>(given);
  const auto [beta1, beta2] = options.betas();
  kernel(lists.values, lists.gradients, lists.first, lists.second, lists.third, lists.steps, options.lr(), beta1, beta2,
         options.weight_decay(), options.eps(), options.amsgrad(), /*maximize=*/false, gradient_scale, std::nullopt);
}

}  // namespace

void ElementLists::clear() {
  for (auto* list : {&values, &gradients, &first, &second, &third, &steps}) list->clear();
}

bool OptimizerUpdate::prepare(ElementState& state, const at::Tensor& values, const OptimizerOptions& options) const {
  if (algorithm_ == Algorithm::kSgd) {
    const bool is_first = static_cast<const SGDOptions&>(options).momentum() != 0 && !state.first.defined();
    if (is_first) state.first = at::zeros_like(values);
    return is_first;
  }
  make_if_missing(state.first, values);
  make_if_missing(state.second, values);
  if (has_amsgrad(algorithm_, options)) make_if_missing(state.third, values);
  return false;
}

void OptimizerUpdate::update(const ElementLists& lists, const OptimizerOptions& options, bool is_first,
                             const std::optional<at::Tensor>& gradient_scale) const {
  if (lists.values.empty()) return;
  switch (algorithm_) {
    case Algorithm::kSgd: {
      const auto& sgd = static_cast<const SGDOptions&>(options);
      at::_fused_sgd_(lists.values, lists.gradients, lists.first, sgd.weight_decay(), sgd.momentum(), sgd.lr(),
                      sgd.dampening(), sgd.nesterov(), /*maximize=*/false, is_first, gradient_scale, std::nullopt);
      return;
    }
    case Algorithm::kAdam:
      return update_adam<AdamOptions>([](auto&&... all) { at::_fused_adam_(all...); }, lists, options, gradient_scale);
    case Algorithm::kAdamW:
      return update_adam<AdamWOptions>([](auto&&... all) { at::_fused_adamw_(all...); }, lists, options,
                                       gradient_scale);
  }
}

std::unique_ptr<torch::optim::Optimizer> OptimizerUpdate::make_optimizer(
    std::vector<torch::optim::OptimizerParamGroup> groups) const {
  if (algorithm_ == Algorithm::kAdam) return std::make_unique<torch::optim::Adam>(groups);
  if (algorithm_ == Algorithm::kAdamW) return std::make_unique<torch::optim::AdamW>(groups);
  return std::make_unique<torch::optim::SGD>(groups, SGDOptions(/*lr=*/0));
}

std::unique_ptr<OptimizerParamState> OptimizerUpdate::wrap(const ElementState& state) const {
  if (algorithm_ == Algorithm::kAdam) return adam_state<AdamParamState>(state);
  if (algorithm_ == Algorithm::kAdamW) return adam_state<AdamWParamState>(state);
  auto made = std::make_unique<SGDParamState>();
  made->momentum_buffer(state.first);
  return made;
}

ElementState OptimizerUpdate::unwrap(const OptimizerParamState& state) const {
  if (algorithm_ == Algorithm::kAdam) return of_adam<AdamParamState>(state);
  if (algorithm_ == Algorithm::kAdamW) return of_adam<AdamWParamState>(state);
  return {.first = static_cast<const SGDParamState&>(state).momentum_buffer()};
}

}  // namespace retinue
