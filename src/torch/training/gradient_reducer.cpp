#include "torch/training/gradient_reducer.h"

#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>
#include <unistd.h>

#include <algorithm>
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

/// Whether the backward that goes on returns the gradient instead of adding it to the parameter's.
bool is_captured(torch::autograd::Node* accumulator) {
  const auto* const tasks = torch::autograd::get_current_graph_task_exec_info();
  if (tasks == nullptr || tasks->empty()) return false;
  const auto found = tasks->find(accumulator);
  return found != tasks->end() && found->second.captures_ != nullptr;
}

bool is_in_backward() {
  return torch::autograd::get_current_graph_task_id() != -1;
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
  std::size_t place() const { return reducer_.members_[member_].place; }

 private:
  GradientReducer& reducer_;
  std::size_t member_;
};

GradientReducer::GradientReducer(ProcessGroup group, GradientReducerOptions options)
    : group_(std::move(group)), process_(getpid()), options_(std::move(options)) {
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
  if (options_.shares_parameters) shared_ = std::make_shared<SharedGradients>(group_, averaged, options_.where);
  buckets_ = std::make_unique<GradientBuckets>(group_, std::move(averaged),
                                               GradientBuckets::Options{.cap_mb = options_.bucket_cap_mb,
                                                                        .reducer = options_.reducer,
                                                                        .hook = options_.hook,
                                                                        .others_read = options_.shares_parameters});
  if (!options_.find_unused_parameters && !options_.static_graph) buckets_->overlap();
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
  if (is_in_backward()) return;  // Its gradients are computed again.
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(suspended_, nullptr))
      throw UsageError(
          "DistributedDataParallel: the last backward ended inside of another one, without gradients of all "
          "parameters, so nothing was averaged; with backwards inside of backwards, as for checkpointed modules, all "
          "parameters need a gradient");
  }
  if (syncs_) {
    follows_forward_ = true;
    forwards_ += is_training;
  }
  change_of_module();
}

void GradientReducer::forget_forward(bool is_training) {
  if (syncs_ && !is_in_backward()) forwards_ -= is_training;
}

GradientReducer::Pass& GradientReducer::current_pass() {
  std::shared_ptr<Pass> pass = pass_.lock();
  if (!pass) {
    pass = std::make_shared<Pass>(
        Pass{.thread = std::this_thread::get_id(), .arrived = std::vector<char>(averaged_.size())});
    pass->left = left_to_others(pass->problem);
    pass_ = pass;
    if (join_) tell_who_goes_on(true);
    buckets_->begin();
  }
  const int task = torch::autograd::get_current_graph_task_id();
  if (!pass->tasks.contains(task)) begin_task(pass, task);
  return *pass;
}

void GradientReducer::begin_task(const std::shared_ptr<Pass>& pass, int task) {
  if (pass->thread != std::this_thread::get_id()) {
    if (pass->problem.empty())
      pass->problem =
          "a backward of the module ran at the same time on another thread, so it is not averaged; call such a "
          "backward while a no_sync() exists";
    return;
  }
  pass->tasks.insert(task);
  ++pass->open_tasks;
  suspended_.reset();
  torch::autograd::Engine::get_default_engine().queue_callback([this, pass] { end_task(pass); });
}

/// A backward that runs inside another one may be followed by more gradients of that one.
void GradientReducer::end_task(const std::shared_ptr<Pass>& pass) {
  {
    const std::lock_guard lock(mutex_);
    if (--pass->open_tasks > 0) return;
    const bool is_inside = torch::autograd::get_current_node() != nullptr;
    const bool lacks_some = std::ranges::find(pass->arrived, 0) != pass->arrived.end();
    if (is_inside && lacks_some) {
      suspended_ = pass;
      return;
    }
    pass_.reset();  // A thread of a device may hold autograd's task a little longer.
  }
  finish(*pass);
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
      if ((shared_ || other.shared_) && problem.empty())
        problem = c10::str("parameter \"", member.name,
                           "\" belongs to two DistributedDataParallel modules, of which one has share_parameters; wrap "
                           "the module once");
    }
  }
  return left;
}

void GradientReducer::note_loaded(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) {
    const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(parameter);
    if (accumulator == nullptr) continue;
    for (const auto& hook : accumulator->post_hooks())
      if (const auto* const after = dynamic_cast<const AfterGradient*>(hook.get()))
        if (const auto& shared = after->reducer().shared_) shared->note_loaded(after->place());
  }
}

void GradientReducer::before_gradient(const Member& member) {
  if (shared_ && !shared_->restore()) refuse_sums();
  if (process_ != getpid()) copy_gradient(member.parameter);
  if (!syncs_) return;
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(member.parameter);
  if (is_captured(accumulator.get())) refuse_captured(member.name);
  if (accumulator == member.accumulator) return;
  const std::lock_guard lock(mutex_);
  current_pass().lost.insert(static_cast<std::size_t>(&member - members_.data()));
}

/// What a fork of the rank has lies in memory that it shares with the rank, and must not be added to.
void GradientReducer::copy_gradient(const at::Tensor& parameter) {
  const at::NoGradGuard no_grad;
  at::Tensor& gradient = parameter.mutable_grad();
  if (gradient.defined()) gradient = gradient.clone();
}

/// On all ranks, if they average.
void GradientReducer::refuse_sums() {
  const char* const problem =
      "a backward followed clip_grad_norm_() or unscale_() without a step() between them; call these functions of "
      "ShardedOptimizer after the last backward of a step";
  if (!syncs_) throw UsageError(problem);
  const std::lock_guard lock(mutex_);
  current_pass().problem = problem;
}

void GradientReducer::after_gradient(const Member& member, bool is_defined) {
  const std::lock_guard lock(mutex_);
  if (is_defined) changed_[member.place] = 1;
  if (!syncs_) return;
  Pass& pass = current_pass();
  if (is_defined && pass.problem.empty()) pass.problem = problem_of_gradient(member);
  const bool arrived_before = std::exchange(pass.arrived[member.place], 1) != 0;
  if (arrived_before && buckets_->overlaps() && pass.problem.empty())
    pass.problem = c10::str("parameter \"", member.name,
                            "\" got two gradients in a backward inside of another one, but the first is being averaged "
                            "already; set find_unused_parameters, with which averaging begins later");
  if (arrived_before || !pass.problem.empty()) return;
  if (pass.left[member.place] || is_sparse(member.place)) return;
  if (buckets_->overlaps()) buckets_->ready(member.place);  // Elsewhere finish() places what takes part.
}

void GradientReducer::finish(Pass& pass) {
  pass.follows_forward = std::exchange(follows_forward_, false);
  pass.forwards = std::exchange(forwards_, 0);
  if (buckets_->overlaps()) buckets_->start_rest();
  options_.before(pass.is_shadow);
  if (shared_)
    for (std::size_t place = 0; place < averaged_.size(); ++place)
      if (members_[averaged_[place]].parameter.grad().defined() && !is_sparse(place))
        buckets_->place(place, /*in_hook=*/false);
  average(agree(pass));
  std::fill(changed_.begin(), changed_.end(), 0);
  options_.after();
}

void GradientReducer::average(const Agreed& agreed) {
  if (shared_) {  // The optimizer averages them.
    if (agreed.has_moved) shared_->exchange();
    shared_->hide();
    return;
  }
  buckets_->start_agreed(agreed.dense);
  buckets_->wait();
  for (const auto& [place, sparse_dimensions] : agreed.sparse) {
    average_sparse(place, sparse_dimensions);
    buckets_->exclude(place);
  }
  scale_for_join(agreed);
  if (!agreed.is_first_of_static) return;
  buckets_->overlap();
  for (const std::size_t place : agreed.partly_lacking) buckets_->exclude(place);
}

}  // namespace retinue
