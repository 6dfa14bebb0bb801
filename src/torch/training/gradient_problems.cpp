// What is wrong with a backward, in words for all ranks.
#include <ATen/ops/linalg_vector_norm.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <cmath>
#include <string>
#include <unordered_set>
#include <vector>

#include "torch/training/gradient_reducer.h"

namespace retinue {
namespace {

std::string listed(const std::vector<std::string>& names) {
  return c10::str("parameter \"", names.front(), "\"",
                  names.size() == 1 ? "" : c10::str(" (and ", names.size() - 1, " more)"));
}

std::string changed_later(const std::vector<std::string>& names, const char* how) {
  return c10::str(listed(names), " was ", how,
                  " after DistributedDataParallel was made, so its gradient is not averaged; do that before, or wrap "
                  "the module again");
}

}  // namespace

/// What became of the module's parameters since they were hooked, if gradients are lost by it. Parameters that were
/// added get hooks that begin a pass: where the others are frozen, or were all replaced, backward reaches nothing else.
std::string GradientReducer::change_of_module() {
  const auto now = options_.changed_parameters();
  const std::lock_guard lock(mutex_);
  remove_hooks_of_added();
  if (!now) return "";
  std::unordered_set<const c10::TensorImpl*> hooked, present;
  for (const Member& member : members_) hooked.insert(member.parameter.unsafeGetTensorImpl());
  std::vector<std::string> added, gone;
  for (const GradientReducerOptions::Parameter& parameter : *now) {
    present.insert(parameter.tensor.unsafeGetTensorImpl());
    if (!parameter.tensor.requires_grad() || hooked.contains(parameter.tensor.unsafeGetTensorImpl())) continue;
    added.push_back(parameter.name);
    added_.emplace_back(parameter.tensor, parameter.tensor.register_hook([this](const at::TensorBase&) {
      const std::lock_guard lock_pass(mutex_);
      if (syncs_) current_pass();
    }));
  }
  for (const Member& member : members_)
    if (member.accumulator && member.parameter.requires_grad() &&
        !present.contains(member.parameter.unsafeGetTensorImpl()))
      gone.push_back(member.name);
  if (!gone.empty()) return changed_later(gone, "replaced in the module, or removed from it,");
  return added.empty() ? "" : changed_later(added, "added to the module");
}

std::string GradientReducer::problem_of_gradient(const Member& member) const {
  const at::Tensor& gradient = member.parameter.grad();
  if (gradient.layout() != at::kStrided && (shared_ || !is_sparse(member.place)))
    return c10::str("the gradient of parameter \"", member.name, "\" has the layout ", gradient.layout(),
                    ", which is not supported", shared_ ? " with share_parameters" : "");
  if (gradient.requires_grad())
    return c10::str("the gradient of parameter \"", member.name,
                    "\" has its own graph (create_graph), so it is not averaged; call such a backward while a "
                    "no_sync() exists");
  if (!options_.check_gradients) return "";
  const c10::NoGradGuard no_grad;
  const at::Tensor values = is_sparse(member.place) ? gradient._values() : gradient;
  if (values.numel() == 0 || !at::isFloatingType(values.scalar_type())) return "";
  // The greatest of all is NaN if one is, and nothing is written for it.
  const double greatest = at::linalg_vector_norm(values, INFINITY).item<double>();
  if (!std::isnan(greatest)) return "";
  return c10::str("the gradient of parameter \"", member.name, "\" has NaN in it");
}

/// With static_graph, every backward has the gradients that the first one had.
std::string GradientReducer::difference_from_static_graph(const Pass& pass) const {
  std::vector<std::string> missing, unexpected;
  for (std::size_t place = 0; place < averaged_.size(); ++place) {
    if (pass.arrived[place] == static_arrived_[place]) continue;
    (pass.arrived[place] ? unexpected : missing).push_back(members_[averaged_[place]].name);
  }
  if (!missing.empty())
    return c10::str(listed(missing), " got no gradient in this backward, but in the first one; with static_graph all ",
                    "backwards must be alike: set find_unused_parameters instead");
  if (unexpected.empty()) return "";
  return c10::str(listed(unexpected), " got a gradient in this backward, but none in the first one; with static_graph ",
                  "all backwards must be alike: set find_unused_parameters instead");
}

std::string GradientReducer::problem_of(const Pass& pass) {
  if (!pass.problem.empty()) return pass.problem;
  std::vector<std::string> names;
  if (!pass.lost.empty()) {
    const bool was_averaged = members_[*pass.lost.begin()].accumulator != nullptr;
    for (const std::size_t index : pass.lost)
      if ((members_[index].accumulator != nullptr) == was_averaged) names.push_back(members_[index].name);
    return changed_later(
        names, was_averaged ? "converted by to(), or loaded by torch::load()," : "made to require a gradient");
  }
  std::string change = change_of_module();
  if (const auto written = shared_ ? shared_->change_of_parameters() : std::nullopt; written && change.empty())
    change = c10::str("parameter \"", members_[averaged_[written->parameter]].name, "\" ", written->what,
                      "; with share_parameters only a ShardedOptimizer writes them: load values before the first "
                      "backward, in place, or by a Checkpoint");
  if (change.empty() && !static_arrived_.empty()) change = difference_from_static_graph(pass);
  if (!change.empty() || options_.find_unused_parameters || options_.static_graph) return change;
  for (std::size_t place = 0; place < averaged_.size(); ++place)
    if (!pass.arrived[place]) names.push_back(members_[averaged_[place]].name);
  if (names.empty()) return "";
  return c10::str(listed(names),
                  " got no gradient in this backward; if this is intended, set find_unused_parameters, otherwise let "
                  "the loss depend on all outputs of the module");
}

}  // namespace retinue
