// Averagings with ranks that have no more inputs.
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>

#include "retinue/base/error.h"
#include "torch/groups/rank_agreement.h"
#include "torch/training/gradient_reducer.h"

namespace retinue {

void GradientReducer::begin_join(const JoinMode& mode) {
  if (shared_)
    throw UsageError("join: the ranks of a model with share_parameters all take part in each step of its optimizer");
  if (join_) throw UsageError("join: the model is in another join() already");
  join_ = Join{.mode = mode, .goes_on = std::vector<char>(static_cast<std::size_t>(group_->getSize()), 1)};
}

/// Forwards before it count no more: after an error, some ranks made more of them.
void GradientReducer::end_join() {
  join_.reset();
  forwards_ = 0;
  follows_forward_ = false;
}

/// Every averaging of a join() begins with it, on all ranks.
void GradientReducer::tell_who_goes_on(bool goes_on) {
  const RankNumbers all = gather_numbers({goes_on}, group_, options_.where);
  std::ranges::transform(all, join_->goes_on.begin(), [](const auto& of_rank) { return of_rank[0] != 0; });
  const auto ended = std::ranges::find(join_->goes_on, 0);
  const bool some_go_on = std::ranges::find(join_->goes_on, 1) != join_->goes_on.end();
  if (join_->mode.throws && ended != join_->goes_on.end() && some_go_on)
    throw UsageError(c10::str("join: rank ", ended - join_->goes_on.begin(),
                              " has no more inputs, but others have (throw_on_early_termination)"));
}

int GradientReducer::first_that_goes_on() const {
  if (!join_) return 0;
  return static_cast<int>(std::ranges::find(join_->goes_on, 1) - join_->goes_on.begin());
}

bool GradientReducer::shadow_backward() {
  const c10::NoGradGuard no_grad;
  tell_who_goes_on(false);
  if (std::ranges::find(join_->goes_on, 1) == join_->goes_on.end()) return false;
  ++join_->shadowed;
  for (const std::size_t index : averaged_) members_[index].parameter.mutable_grad() = at::Tensor();
  std::fill(changed_.begin(), changed_.end(), 0);
  Pass pass{.arrived = std::vector<char>(averaged_.size()), .left = std::vector<char>(averaged_.size())};
  pass.is_shadow = true;
  buckets_->begin();
  finish(pass);
  return true;
}

/// What averages over all ranks must be multiplied by, for averages over those that go on.
void GradientReducer::scale_for_join(const Agreed& agreed) {
  if (!join_ || join_->mode.divides_by_all) return;
  const c10::NoGradGuard no_grad;
  const auto going_on = std::ranges::count(join_->goes_on, 1);
  const double factor = static_cast<double>(group_->getSize()) / static_cast<double>(going_on);
  for (std::size_t place = 0; place < averaged_.size(); ++place) {
    at::Tensor& gradient = members_[averaged_[place]].parameter.mutable_grad();
    const bool is_averaged = agreed.dense[place] || is_sparse(place);
    if (gradient.defined() && is_averaged) gradient.mul_(factor);
  }
}

int GradientReducer::last_in_join() const {
  const RankNumbers all = gather_numbers({join_->shadowed}, group_, options_.where);
  return static_cast<int>(std::ranges::min_element(all) - all.begin());
}

}  // namespace retinue
