#include "torch/checkpoint/state_restorer.h"

#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <sstream>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "retinue/base/error.h"
#include "torch/checkpoint/collected_state.h"
#include "torch/training/gradient_reducer.h"

namespace retinue {
namespace {

constexpr std::size_t kMostProblems = 5;  // In an error.

std::string type_and_shape(at::ScalarType type, at::IntArrayRef sizes) {
  return c10::str("type ", c10::toString(type), " and shape ", sizes);
}

std::string type_and_shape(const SavedTensor& tensor) {
  return type_and_shape(tensor.scalar_type(), tensor.sizes);
}

}  // namespace

void StateRestorer::add_problem(const std::string& problem) {
  problems_.push_back(problem);
}

void StateRestorer::check() {
  check_model();
  check_optimizer();
  check_sampler();
  if (problems_.empty()) return;
  std::string text;
  for (std::size_t i = 0; i < std::min(problems_.size(), kMostProblems); ++i)
    text += (i > 0 ? "; " : "") + problems_[i];
  if (problems_.size() > kMostProblems) text += c10::str("; and ", problems_.size() - kMostProblems, " more");
  throw Error(c10::str(reader_.path().string(), " doesn't fit: ", text));
}

void StateRestorer::check_model() {
  if (state_.model.get() == nullptr) return;
  if (!saved_.model) return add_problem("it has no model");
  std::unordered_map<std::string, std::size_t> in_file(saved_.model->begin(), saved_.model->end());
  for (const ModelTensor& own : model_tensors(*state_.model.get())) {
    const auto place = in_file.find(own.name);
    if (place == in_file.end()) {
      add_problem(name_in_model(own.name) + " is missing in it");
      continue;
    }
    const SavedTensor& saved = saved_.tensors.at(place->second);
    if (saved.scalar_type() != own.tensor.scalar_type() || own.tensor.sizes() != saved.sizes)
      add_problem(c10::str(name_in_model(own.name), " has ", type_and_shape(saved), " in it, but ",
                           type_and_shape(own.tensor.scalar_type(), own.tensor.sizes()), " in the model"));
    in_file.erase(place);
  }
  for (const auto& [name, index] : *saved_.model)
    if (in_file.contains(name)) add_problem(name_in_model(name) + " is not in the model");
}

void StateRestorer::check_optimizer() {
  torch::optim::Optimizer* const whole = state_.optimizer.get();
  if (whole == nullptr) return;
  if (!saved_.optimizer) return add_problem("it has no optimizer");
  auto* const shards = dynamic_cast<ShardedState*>(whole);
  local_ = shards != nullptr ? &shards->local_optimizer() : whole;
  kind_ = kind_of(*local_);
  const std::string own_type = kind_ != nullptr ? kind_->name : class_name_of(*whole);
  if (own_type != saved_.optimizer->type)
    return add_problem(
        c10::str("it has the state of ", saved_.optimizer->type, ", but the optimizer is of the class ", own_type));
  if (kind_ == nullptr) return;
  for (const torch::optim::OptimizerParamGroup& group : whole->param_groups())
    parameters_.insert(parameters_.end(), group.params().begin(), group.params().end());
  const std::size_t before = problems_.size();
  check_groups();
  if (problems_.size() == before) check_states();
  if (problems_.size() == before) check_slices();
}

void StateRestorer::check_groups() {
  const auto& groups = state_.optimizer.get()->param_groups();
  const std::vector<SavedGroup>& saved = saved_.optimizer->groups;
  if (groups.size() != saved.size())
    return add_problem(c10::str("optimizer[\"param_groups\"] has ", saved.size(),
                                " groups in it, but the optimizer has ", groups.size()));
  for (std::size_t i = 0; i < groups.size(); ++i)
    if (groups[i].params().size() != saved[i].parameter_count)
      add_problem(c10::str("optimizer[\"param_groups\"][", i, "] has ", saved[i].parameter_count,
                           " parameters in it, but ", groups[i].params().size(), " in the optimizer"));
}

void StateRestorer::check_states() {
  std::unordered_set<std::string> known;
  kind_->visit_state(*kind_->make_state(), [&](const char* name, OptimizerKind::Field) { known.insert(name); });
  for (const SavedParameterState& state : saved_.optimizer->states)
    for (const SavedField& field : state.fields) {
      const std::string name = name_in_optimizer(state.parameter, field.name);
      if (!known.contains(field.name) || state.parameter >= parameters_.size()) {
        add_problem(c10::str(name, " is not in the optimizer"));
      } else if (field.tensor != SavedField::kNoTensor) {
        const SavedTensor& saved = saved_.tensors.at(static_cast<std::size_t>(field.tensor));
        const at::Tensor& parameter = parameters_[state.parameter];
        if (parameter.sizes() != saved.sizes)
          add_problem(
              c10::str(name, " has shape ", saved.shape_text(), " in it, but the parameter has ", parameter.sizes()));
      }
    }
}

void StateRestorer::check_slices() {
  for (const Slice& slice : slices()) {
    const bool is_known = slice.index < parameters_.size();
    if (!is_known || slice.begin < 0 || slice.begin + slice.parameter.numel() > parameters_[slice.index].numel())
      add_problem(c10::str("the optimizer's slice of ", slice.parameter.numel(), " elements from ", slice.begin,
                           " on lies outside of parameter ", slice.index));
  }
}

void StateRestorer::check_sampler() {
  if (state_.sampler.get() == nullptr) return;
  if (!saved_.sampler) add_problem("it has no sampler");
}

void StateRestorer::restore() {
  // First, because it may refuse the state, and has then changed nothing.
  if (state_.sampler.get() != nullptr) state_.sampler.get()->resume_at(*saved_.sampler);
  if (state_.model.get() != nullptr) {
    const std::unordered_map<std::string, std::size_t> in_file(saved_.model->begin(), saved_.model->end());
    std::unordered_set<const c10::TensorImpl*> done;  // Names may share a tensor.
    std::vector<at::Tensor> loaded;
    for (const ModelTensor& own : model_tensors(*state_.model.get())) {
      if (!done.insert(own.tensor.unsafeGetTensorImpl()).second) continue;
      reader_.read(in_file.at(own.name), 0, own.tensor);
      loaded.push_back(own.tensor);
    }
    GradientReducer::note_loaded(loaded);
  }
  if (local_ != nullptr) restore_optimizer();
  restore_generators();
}

void StateRestorer::restore_optimizer() {
  if (kind_ == nullptr) {
    std::istringstream stream(saved_.optimizer->archive);
    torch::serialize::InputArchive archive;
    archive.load_from(stream);
    return local_->load(archive);
  }
  restore_options(*state_.optimizer.get());
  if (local_ != state_.optimizer.get()) restore_options(*local_);
  for (const Slice& slice : slices()) restore_state(slice);
}

void StateRestorer::restore_options(torch::optim::Optimizer& optimizer) const {
  for (std::size_t i = 0; i < std::min(optimizer.param_groups().size(), saved_.optimizer->groups.size()); ++i) {
    const std::vector<SavedOption>& saved = saved_.optimizer->groups[i].options;
    kind_->visit_options(optimizer.param_groups()[i].options(), [&](const char* name, OptimizerKind::Option value) {
      const auto option = std::ranges::find(saved, name, &SavedOption::name);
      if (option == saved.end()) return;
      if (auto* const* const number = std::get_if<double*>(&value))
        **number = option->first;
      else if (auto* const* const flag = std::get_if<bool*>(&value))
        **flag = option->first != 0;
      else if (auto* const* const pair = std::get_if<OptimizerKind::Betas*>(&value))
        **pair = {option->first, option->second};
    });
  }
}

std::vector<StateRestorer::Slice> StateRestorer::slices() const {
  std::vector<Slice> all;
  auto* const shards = dynamic_cast<ShardedState*>(state_.optimizer.get());
  if (shards == nullptr) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) all.push_back({parameters_[i], i, 0});
    return all;
  }
  const std::vector<ParameterSlice> parts = shards->slices();
  for (const torch::optim::OptimizerParamGroup& group : local_->param_groups())
    for (const at::Tensor& parameter : group.params()) {
      const ParameterSlice& part = parts.at(all.size());
      all.push_back({parameter, part.parameter, part.begin});
    }
  return all;
}

void StateRestorer::restore_state(const Slice& slice) const {
  const auto& states = saved_.optimizer->states;
  const auto saved = std::ranges::lower_bound(states, slice.index, {}, &SavedParameterState::parameter);
  void* const key = slice.parameter.unsafeGetTensorImpl();
  if (saved == states.end() || saved->parameter != slice.index) {
    local_->state().erase(key);
    return;
  }
  std::unique_ptr<torch::optim::OptimizerParamState> state = kind_->make_state();
  kind_->visit_state(*state, [&](const char* name, OptimizerKind::Field value) {
    const auto field = std::ranges::find(saved->fields, name, &SavedField::name);
    if (field == saved->fields.end()) return;
    if (auto* const* const count = std::get_if<std::int64_t*>(&value)) {
      **count = field->count;
      return;
    }
    const auto index = static_cast<std::size_t>(field->tensor);
    const at::Tensor tensor =
        at::empty(slice.parameter.sizes(), slice.parameter.options().dtype(saved_.tensors.at(index).scalar_type()));
    reader_.read(index, slice.begin, tensor);
    *std::get<at::Tensor*>(value) = tensor;
  });
  local_->state()[key] = std::move(state);
}

void StateRestorer::restore_generators() const {
  if (static_cast<std::size_t>(rank_) >= saved_.generators.size()) return;
  for (at::Generator& generator : random_generators(state_)) {
    const std::string device = c10::DeviceTypeName(generator.device().type(), /*lower_case=*/true);
    for (const SavedGenerator& saved : saved_.generators[static_cast<std::size_t>(rank_)]) {
      if (saved.device != device) continue;
      const at::Tensor bytes = at::empty({static_cast<std::int64_t>(saved.state.size())}, at::kByte);
      std::memcpy(bytes.mutable_data_ptr(), saved.state.data(), saved.state.size());
      const std::lock_guard lock(generator.mutex());
      generator.set_state(bytes);
    }
  }
}

}  // namespace retinue
