#include "torch/checkpoint/optimizer_kind.h"

#include <c10/util/Type.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <typeinfo>

namespace retinue {
namespace {

namespace optim = torch::optim;

template <class Visit>
void visit_fields_of(optim::SGDOptions& options, const Visit& visit) {
  visit("lr", &options.lr());
  visit("momentum", &options.momentum());
  visit("dampening", &options.dampening());
  visit("weight_decay", &options.weight_decay());
  visit("nesterov", &options.nesterov());
}
template <class Visit>
void visit_fields_of(optim::SGDParamState& state, const Visit& visit) {
  visit("momentum_buffer", &state.momentum_buffer());
}

/// Of Adam and AdamW, which have the same.
template <class Options, class Visit>
void visit_options_of_adam(Options& options, const Visit& visit) {
  visit("lr", &options.lr());
  visit("betas", &options.betas());
  visit("eps", &options.eps());
  visit("weight_decay", &options.weight_decay());
  visit("amsgrad", &options.amsgrad());
}
template <class State, class Visit>
void visit_state_of_adam(State& state, const Visit& visit) {
  visit("step", &state.step());
  visit("exp_avg", &state.exp_avg());
  visit("exp_avg_sq", &state.exp_avg_sq());
  visit("max_exp_avg_sq", &state.max_exp_avg_sq());
}
template <class Visit>
void visit_fields_of(optim::AdamOptions& options, const Visit& visit) {
  visit_options_of_adam(options, visit);
}
template <class Visit>
void visit_fields_of(optim::AdamParamState& state, const Visit& visit) {
  visit_state_of_adam(state, visit);
}
template <class Visit>
void visit_fields_of(optim::AdamWOptions& options, const Visit& visit) {
  visit_options_of_adam(options, visit);
}
template <class Visit>
void visit_fields_of(optim::AdamWParamState& state, const Visit& visit) {
  visit_state_of_adam(state, visit);
}

template <class Visit>
void visit_fields_of(optim::RMSpropOptions& options, const Visit& visit) {
  visit("lr", &options.lr());
  visit("alpha", &options.alpha());
  visit("eps", &options.eps());
  visit("weight_decay", &options.weight_decay());
  visit("momentum", &options.momentum());
  visit("centered", &options.centered());
}
template <class Visit>
void visit_fields_of(optim::RMSpropParamState& state, const Visit& visit) {
  visit("step", &state.step());
  visit("square_avg", &state.square_avg());
  visit("momentum_buffer", &state.momentum_buffer());
  visit("grad_avg", &state.grad_avg());
}

template <class Visit>
void visit_fields_of(optim::AdagradOptions& options, const Visit& visit) {
  visit("lr", &options.lr());
  visit("lr_decay", &options.lr_decay());
  visit("weight_decay", &options.weight_decay());
  visit("initial_accumulator_value", &options.initial_accumulator_value());
  visit("eps", &options.eps());
}
template <class Visit>
void visit_fields_of(optim::AdagradParamState& state, const Visit& visit) {
  visit("step", &state.step());
  visit("sum", &state.sum());
}

template <class Options, class State>
constexpr OptimizerKind make_kind(const char* name) {
  return {.name = name,
          .visit_options =
              [](optim::OptimizerOptions& options, const OptimizerKind::VisitOption& visit) {
                visit_fields_of(dynamic_cast<Options&>(options), visit);
              },
          .visit_state =
              [](optim::OptimizerParamState& state, const OptimizerKind::VisitField& visit) {
                visit_fields_of(dynamic_cast<State&>(state), visit);
              },
          .make_state = []() -> std::unique_ptr<optim::OptimizerParamState> { return std::make_unique<State>(); }};
}

constexpr OptimizerKind kSgd = make_kind<optim::SGDOptions, optim::SGDParamState>("SGD");
constexpr OptimizerKind kAdam = make_kind<optim::AdamOptions, optim::AdamParamState>("Adam");
constexpr OptimizerKind kAdamW = make_kind<optim::AdamWOptions, optim::AdamWParamState>("AdamW");
constexpr OptimizerKind kRmsprop = make_kind<optim::RMSpropOptions, optim::RMSpropParamState>("RMSprop");
constexpr OptimizerKind kAdagrad = make_kind<optim::AdagradOptions, optim::AdagradParamState>("Adagrad");

}  // namespace

const OptimizerKind* kind_of(const optim::Optimizer& optimizer) {
  const std::type_info& type = typeid(optimizer);
  if (type == typeid(optim::SGD)) return &kSgd;
  if (type == typeid(optim::Adam)) return &kAdam;
  if (type == typeid(optim::AdamW)) return &kAdamW;
  if (type == typeid(optim::RMSprop)) return &kRmsprop;
  if (type == typeid(optim::Adagrad)) return &kAdagrad;
  return nullptr;
}

std::string class_name_of(const optim::Optimizer& optimizer) {
  return c10::demangle(typeid(optimizer).name());
}

}  // namespace retinue
