#include "torch/training/gradient_reducer.h"

#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "retinue/base/error.h"

namespace retinue {
namespace {

using torch::autograd::variable_list;

[[noreturn]] void refuse_captured(const std::string& name) {
  throw UsageError(
      c10::str("DistributedDataParallel: torch::autograd::grad() computes the gradient of parameter \"", name,
               "\" without averaging it; call backward() instead, or call grad() while a no_sync() exists"));
}

std::string listed(const std::vector<std::string>& names) {
  return c10::str("parameter \"", names.front(), "\"",
                  names.size() == 1 ? "" : c10::str(" (and ", names.size() - 1, " more)"));
}

std::string changed_later(const std::vector<std::string>& names, const char* how) {
  return c10::str(listed(names), " was ", how,
                  " after DistributedDataParallel was made, so its gradient is not averaged; do that before, or wrap "
                  "the module again");
}

/// Whether the backward that goes on returns the gradient instead of adding it to the parameter's.
bool is_captured(torch::autograd::Node* accumulator) {
  const auto* const tasks = torch::autograd::get_current_graph_task_exec_info();
  if (tasks == nullptr || tasks->empty()) return false;
  const auto found = tasks->find(accumulator);
  return found != tasks->end() && found->second.captures_ != nullptr;
}

}  // namespace

class GradientReducer::AfterGradient final : public torch::autograd::FunctionPostHook {
 public:
  AfterGradient(GradientReducer& reducer, std::size_t member) : reducer_(reducer), member_(member) {}
  variable_list operator()(const variable_list& outputs, const variable_list& gradients) override {
    reducer_.after_gradient(reducer_.members_[member_], gradients.front().defined());
    return outputs;
  }
  const GradientReducer& reducer() const { return reducer_; }

 private:
  GradientReducer& reducer_;
  std::size_t member_;
};

GradientReducer::GradientReducer(ProcessGroup group, GradientReducerOptions options)
    : group_(std::move(group)), options_(std::move(options)) {
  std::vector<at::Tensor> averaged;
  for (GradientReducerOptions::Parameter& given : options_.parameters) {
    Member& member = members_.emplace_back(Member{.name = std::move(given.name), .parameter = given.tensor});
    if (!member.parameter.requires_grad()) continue;
    member.accumulator = torch::autograd::impl::grad_accumulator(member.parameter);
    member.place = averaged.size();
    averaged_.push_back(members_.size() - 1);
    averaged.push_back(member.parameter);
  }
  options_.parameters.clear();
  changed_.resize(averaged.size());
  buckets_ = std::make_unique<GradientBuckets>(
      group_, std::move(averaged),
      GradientBuckets::Options{.cap_mb = options_.bucket_cap_mb, .overlaps = !options_.find_unused_parameters});
  try {
    for (std::size_t i = 0; i < members_.size(); ++i) add_hooks(i);
  } catch (...) {
    remove_hooks();  // They have this object.
    throw;
  }
}

GradientReducer::~GradientReducer() {
  remove_hooks();
}

void GradientReducer::remove_hooks() {
  for (const Member& member : members_) {
    if (member.is_hooked) member.parameter.remove_hook(member.before_hook);
    if (member.accumulator) member.accumulator->del_post_hook(member.after_hook);
  }
  remove_hooks_of_added();
}

void GradientReducer::remove_hooks_of_added() {
  for (const auto& [parameter, hook] : added_) parameter.remove_hook(hook);
  added_.clear();
}

/// A hook of the tensor, unlike one of its accumulator, stays when the tensor is converted, and also sees gradients
/// that are not added to anything. Parameters without gradients get it as well, for they may be asked for some later.
void GradientReducer::add_hooks(std::size_t index) {
  Member& member = members_[index];
  if (!torch::autograd::isDifferentiableType(member.parameter.scalar_type()) || member.parameter.is_inference()) return;
  const bool requires_grad = member.parameter.requires_grad();
  member.parameter.set_requires_grad(true);
  member.before_hook =
      member.parameter.register_hook([this, index](const at::TensorBase&) { before_gradient(members_[index]); });
  member.parameter.set_requires_grad(requires_grad);
  member.is_hooked = true;
  if (member.accumulator)
    member.after_hook = member.accumulator->add_post_hook(std::make_unique<AfterGradient>(*this, index));
}

bool GradientReducer::set_sync(bool enabled) {
  return std::exchange(syncs_, enabled);
}

void GradientReducer::note_forward(bool is_training) {
  if (syncs_) {
    follows_forward_ = true;
    forwards_ += is_training;
  }
  change_of_module();
}

void GradientReducer::forget_forward(bool is_training) {
  if (syncs_) forwards_ -= is_training;
}

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

GradientReducer::Pass& GradientReducer::current_pass() {
  const int task = torch::autograd::get_current_graph_task_id();
  if (const auto pass = pass_.lock()) {
    if (pass->task != task && pass->problem.empty())
      pass->problem =
          "a backward of the module ran inside another backward, or at the same time on another thread, so it is not "
          "averaged; call such a backward while a no_sync() exists";
    return *pass;
  }
  const auto pass = std::make_shared<Pass>(Pass{.task = task, .arrived = std::vector<char>(averaged_.size())});
  pass->left = left_to_others(pass->problem);
  pass_ = pass;
  buckets_->begin();
  torch::autograd::Engine::get_default_engine().queue_callback([this, pass] { finish(*pass); });
  return *pass;
}

/// Those of the same group that were made first have first hooks.
std::vector<char> GradientReducer::left_to_others(std::string& problem) const {
  std::vector<char> left(averaged_.size());
  for (std::size_t place = 0; place < averaged_.size(); ++place) {
    const Member& member = members_[averaged_[place]];
    bool is_behind = false;
    for (const auto& hook : member.accumulator->post_hooks()) {
      const auto* const after = dynamic_cast<const AfterGradient*>(hook.get());
      if (after == nullptr) continue;
      const GradientReducer& other = after->reducer();
      if (&other == this) is_behind = true;
      if (&other == this || !other.syncs_) continue;
      if (!is_behind) left[place] = 1;
      if (other.group_ != group_ && problem.empty())
        problem = c10::str("parameter \"", member.name,
                           "\" belongs to two DistributedDataParallel modules of different groups; wrap both with the "
                           "same group, or use no_sync() on one of them");
    }
  }
  return left;
}

void GradientReducer::before_gradient(const Member& member) {
  if (!syncs_) return;
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(member.parameter);
  if (is_captured(accumulator.get())) refuse_captured(member.name);
  if (accumulator == member.accumulator) return;
  const std::lock_guard lock(mutex_);
  current_pass().lost.insert(static_cast<std::size_t>(&member - members_.data()));
}

void GradientReducer::after_gradient(const Member& member, bool is_defined) {
  const std::lock_guard lock(mutex_);
  if (is_defined) changed_[member.place] = 1;
  if (!syncs_) return;
  Pass& pass = current_pass();
  if (is_defined && member.parameter.grad().layout() != at::kStrided && !is_sparse(member.place)) {
    pass.problem = c10::str("the gradient of parameter \"", member.name, "\" has the layout ",
                            member.parameter.grad().layout(), ", which is not supported");
    return;
  }
  if (is_defined && member.parameter.grad().requires_grad()) {
    pass.problem = c10::str(
        "the gradient of parameter \"", member.name,
        "\" has its own graph (create_graph), so it is not averaged; call such a backward while a no_sync() exists");
    return;
  }
  if (std::exchange(pass.arrived[member.place], 1) || !pass.problem.empty()) return;
  if (pass.left[member.place] || is_sparse(member.place)) return;
  if (buckets_->overlaps()) buckets_->ready(member.place);  // Elsewhere finish() places what takes part.
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
  if (!change.empty() || options_.find_unused_parameters) return change;
  for (std::size_t place = 0; place < averaged_.size(); ++place)
    if (!pass.arrived[place]) names.push_back(members_[averaged_[place]].name);
  if (names.empty()) return "";
  return c10::str(listed(names),
                  " got no gradient in this backward; if this is intended, set find_unused_parameters, otherwise let "
                  "the loss depend on all outputs of the module");
}

void GradientReducer::finish(Pass& pass) {
  {
    const std::lock_guard lock(mutex_);
    pass_.reset();  // A thread of a device may hold autograd's task a little longer.
  }
  pass.follows_forward = std::exchange(follows_forward_, false);
  pass.forwards = std::exchange(forwards_, 0);
  if (buckets_->overlaps()) buckets_->start_rest();
  options_.before();
  const Agreed agreed = agree(pass);
  buckets_->start_agreed(agreed.dense);
  buckets_->wait();
  for (const auto& [place, sparse_dimensions] : agreed.sparse) {
    average_sparse(place, sparse_dimensions);
    buckets_->exclude(place);
  }
  std::fill(changed_.begin(), changed_.end(), 0);
  options_.after();
}

}  // namespace retinue
