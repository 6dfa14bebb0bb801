#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <variant>

namespace retinue {

/// The fields of the options and states of a class of optimizers, by the names that they have in Python.
struct OptimizerKind {
  using Betas = std::tuple<double, double>;
  using Option = std::variant<double*, bool*, Betas*>;
  using Field = std::variant<at::Tensor*, std::int64_t*>;
  using VisitOption = std::function<void(const char* name, Option value)>;
  using VisitField = std::function<void(const char* name, Field value)>;

  const char* name;  ///< The class in torch.optim.
  void (*visit_options)(torch::optim::OptimizerOptions& options, const VisitOption& visit);
  void (*visit_state)(torch::optim::OptimizerParamState& state, const VisitField& visit);
  std::unique_ptr<torch::optim::OptimizerParamState> (*make_state)();
};

/// Returns null for all but LibTorch's own SGD, Adam, AdamW, RMSprop and Adagrad; a class that derives from one of them
/// may have more state.
const OptimizerKind* kind_of(const torch::optim::Optimizer& optimizer);

/// The class's name in C++.
std::string class_name_of(const torch::optim::Optimizer& optimizer);

}  // namespace retinue
