// What the ranks tell each other at the end of a backward, and sparse gradients, of which they learn by that.
#include <ATen/ops/_sparse_coo_tensor_with_dims.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "retinue/base/error.h"
#include "torch/groups/rank_agreement.h"
#include "torch/training/gradient_reducer.h"

namespace retinue {
namespace {

/// What ranks tell each other before each averaging, as bytes of which each is the greatest of all ranks'.
enum Told : std::int64_t {
  kProblem,
  kFollowsForward,
  kFollowsNone,
  kMostForwards,
  kFewestForwards,
  kHasSparse,
  kHasMoved,
  kFirstChanged  ///< By place: has a gradient; then, for a static graph, by place: has none.
};
constexpr int kManyForwards = UINT8_MAX;  ///< More are told as so many.

}  // namespace

/// Ends on all ranks with the first one's problem, if one has any. Returns what the ranks average.
GradientReducer::Agreed GradientReducer::agree(const Pass& pass) {
  std::string problem = pass.is_shadow ? "" : problem_of(pass);
  // Those that came may be gone: the program dropped them, after an error or before this backward.
  for (std::size_t place = 0; place < averaged_.size(); ++place)
    if (!members_[averaged_[place]].parameter.grad().defined()) changed_[place] = 0;
  const bool learns_graph = options_.static_graph && static_dense_.empty();
  const std::size_t changed = options_.find_unused_parameters || learns_graph ? changed_.size() : 0;
  const std::size_t lacking = learns_graph ? changed : 0;
  at::Tensor told = at::zeros({kFirstChanged + static_cast<std::int64_t>(changed + lacking)}, at::kByte);
  auto* const bytes = told.data_ptr<std::uint8_t>();
  bytes[kProblem] = !problem.empty();
  const int forwards = std::min(pass.forwards, kManyForwards);
  if (!pass.is_shadow) {
    bytes[pass.follows_forward ? kFollowsForward : kFollowsNone] = 1;
    bytes[kMostForwards] = static_cast<std::uint8_t>(forwards);
    bytes[kFewestForwards] = static_cast<std::uint8_t>(kManyForwards - forwards);
  }
  for (std::size_t place = 0; place < averaged_.size(); ++place)
    if (!pass.left[place] && is_sparse(place)) bytes[kHasSparse] = 1;
  bytes[kHasMoved] = shared_ && shared_->has_moved();
  std::copy_n(changed_.begin(), changed, bytes + kFirstChanged);
  std::uint8_t* const lacks = bytes + kFirstChanged + changed;
  std::transform(changed_.begin(), changed_.begin() + static_cast<std::ptrdiff_t>(lacking), lacks,
                 [](char has) { return has ? 0 : 1; });
  if (group_->getSize() > 1) reduce_in_backward(group_, {told}, c10d::ReduceOp::MAX, /*async_op=*/false);
  const bool is_of_some = bytes[kFollowsForward] && bytes[kFollowsNone];
  if (is_of_some && !pass.follows_forward && !pass.is_shadow && problem.empty())
    problem =
        "this rank made no forward of DistributedDataParallel since its last backward, but other ranks did; if only "
        "this rank calls backward(), do so while a no_sync() exists, and if only one rank calls forward(), use "
        "NoGradGuard; if all ranks make this backward, make the same forwards on all of them before, all with model(x) "
        "or all with model->forward(x)";
  const int fewest = kManyForwards - bytes[kFewestForwards];
  const bool are_as_many = bytes[kMostForwards] == fewest;
  if (!is_of_some && !are_as_many && forwards == bytes[kMostForwards] && !pass.is_shadow && problem.empty())
    problem = c10::str("this rank made ", forwards, " forwards of DistributedDataParallel since its last averaged ",
                       "backward, but another rank made ", fewest, "; if this rank skipped a backward, make it on all ",
                       "ranks, or none; if it made a forward that no backward follows, use NoGradGuard");
  if (bytes[kProblem] || is_of_some || !are_as_many) throw_on_all(problem);
  Agreed agreed{.dense = std::vector<char>(changed_.size(), 1), .has_moved = bytes[kHasMoved] != 0};
  std::copy_n(bytes + kFirstChanged, changed, agreed.dense.begin());
  if (learns_graph) {
    static_arrived_ = pass.arrived;
    static_dense_ = agreed.dense;
    for (std::size_t place = 0; place < lacking; ++place)
      if (lacks[place]) agreed.partly_lacking.push_back(place);
    agreed.is_first_of_static = true;
  }
  if (!static_dense_.empty()) agreed.dense = static_dense_;
  for (std::size_t place = 0; place < agreed.dense.size(); ++place)
    if (pass.left[place]) agreed.dense[place] = 0;
  if (bytes[kHasSparse]) agree_on_sparse(agreed);
  return agreed;
}

bool GradientReducer::is_sparse(std::size_t place) const {
  const at::Tensor& gradient = members_[averaged_[place]].parameter.grad();
  return gradient.defined() && gradient.layout() == at::kSparse;
}

/// A rank without a gradient adds nothing to those of others, whether they are sparse or dense.
void GradientReducer::agree_on_sparse(Agreed& agreed) const {
  const std::size_t places = agreed.dense.size();
  at::Tensor told = at::zeros({2, static_cast<std::int64_t>(places)}, at::kByte);
  auto* const sparse_dimensions = told.data_ptr<std::uint8_t>();
  auto* const has_dense = sparse_dimensions + places;
  for (std::size_t place = 0; place < places; ++place) {
    const at::Tensor& gradient = members_[averaged_[place]].parameter.grad();
    if (!agreed.dense[place] || !gradient.defined()) continue;
    if (is_sparse(place))
      sparse_dimensions[place] = static_cast<std::uint8_t>(gradient.sparse_dim());
    else
      has_dense[place] = 1;
  }
  if (group_->getSize() > 1) reduce_in_backward(group_, {told}, c10d::ReduceOp::MAX, /*async_op=*/false);
  for (std::size_t place = 0; place < places; ++place) {
    if (sparse_dimensions[place] == 0) continue;
    if (has_dense[place])
      throw UsageError(c10::str("DistributedDataParallel: the gradient of parameter \"",
                                members_[averaged_[place]].name,
                                "\" is sparse on some ranks and dense on others; use it in the same way on all ranks"));
    agreed.dense[place] = 0;
    agreed.sparse.emplace_back(place, sparse_dimensions[place]);
  }
}

/// Makes a new gradient: one that the program keeps must not change.
void GradientReducer::average_sparse(std::size_t place, std::int64_t sparse_dimensions) {
  if (group_->getSize() == 1) return;
  const at::NoGradGuard no_grad;
  const at::Tensor& parameter = members_[averaged_[place]].parameter;
  at::Tensor& gradient = parameter.mutable_grad();
  at::Tensor sum = gradient.defined() ? gradient.clone()
                                      : at::_sparse_coo_tensor_with_dims(
                                            sparse_dimensions, parameter.dim() - sparse_dimensions, parameter.sizes(),
                                            parameter.options().layout(at::kSparse).requires_grad(false));
  all_reduce(sum, group_, {}, options_.where);
  gradient = sum.div_(group_->getSize());
}

void GradientReducer::throw_on_all(const std::string& problem) const {
  const RankNumbers sizes = gather_numbers({static_cast<std::int64_t>(problem.size())}, group_, options_.where);
  std::size_t first = 0;
  while (first + 1 < sizes.size() && sizes[first][0] == 0) ++first;
  throw UsageError(c10::str("DistributedDataParallel: on rank ", first, ": ",
                            tell_all(problem, sizes[first][0], static_cast<int>(first), group_, options_.where)));
}

}  // namespace retinue
