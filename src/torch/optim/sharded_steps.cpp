#include "torch/optim/sharded_steps.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "retinue/base/error.h"

namespace retinue {
namespace {

/// The kernels go through memory, so that gradients must lie as their parameters do.
void fit_gradient(const at::Tensor& parameter) {
  at::Tensor& gradient = parameter.mutable_grad();
  if (!gradient.defined()) return;
  if (gradient.layout() != at::kStrided)
    throw UsageError(c10::str("ShardedOptimizer: the gradient of a parameter of shape ", parameter.sizes(),
                              " has the layout ", gradient.layout(), ", which is not supported"));
  if (gradient.strides() == parameter.strides()) return;
  gradient = at::empty_strided(parameter.sizes(), parameter.strides(), gradient.options()).copy_(gradient);
}

}  // namespace

ShardedOptimizerBase::Impl::Impl(ShardedOptimizerAlgorithm algorithm, DataParallelCore& ddp, const Groups& groups,
                                 std::source_location where)
    : update_(algorithm), group_(ddp.group()), shared_(ddp.shared_gradients()), where_(where) {
  take_parameters(ddp, groups);
  const FlatLayout layout(parameters_, group_->getSize());
  if (shared_ && group_->getSize() > 1) undo_.emplace(parameters_, layout, group_, where_);
  if (!shared_) flatten(layout);
  shard_.emplace(parameters_, slice_of(layout, parameters_, group_->getRank(), group_->getSize()), group_of_, update_,
                 shared_ ? group_->getRank() : 0, shared_ ? group_->getSize() : 1);
  if (shared_) shared_->claim();
}

ShardedOptimizerBase::Impl::~Impl() {
  if (shared_) shared_->release();
}

bool ShardedOptimizerBase::Impl::step(const Groups& groups) {
  check_groups(groups);
  const bool skips = std::exchange(skips_, false);
  if (shared_) return step_shared(groups, skips);
  if (skips) return false;
  check_places();
  for (const at::Tensor& parameter : parameters_) fit_gradient(parameter);
  shard_->step(gradients(), groups, {});
  gather();
  note_update();
  return true;
}

double ShardedOptimizerBase::Impl::clip(double max_norm, double norm_type) {
  if (!(max_norm > 0)) throw UsageError("clip_grad_norm_: max_norm must be above 0");
  if (!(norm_type > 0)) throw UsageError("clip_grad_norm_: norm_type must be above 0");
  const double norm = norm_of(norm_type) / divisor();
  const double factor = std::min(1.0, max_norm / (norm + 1e-6));  // As PyTorch does.
  scale(factor);
  return norm;
}

bool ShardedOptimizerBase::Impl::unscale(double loss_scale) {
  if (!(loss_scale > 0) || !std::isfinite(loss_scale))
    throw UsageError("unscale_: loss_scale must be above 0, and finite");
  skips_ = !std::isfinite(norm_of(INFINITY));
  scale(1 / loss_scale);
  return !skips_;
}

void ShardedOptimizerBase::Impl::take_parameters(DataParallelCore& ddp, const Groups& groups) {
  std::unordered_map<const c10::TensorImpl*, std::size_t> group_of;
  for (std::size_t i = 0; i < groups.size(); ++i)
    for (const at::Tensor& parameter : groups[i].params())
      if (!group_of.emplace(parameter.unsafeGetTensorImpl(), i).second)
        throw UsageError(c10::str("ShardedOptimizer: a parameter of shape ", parameter.sizes(),
                                  " is twice in the parameter groups"));
  given_ = group_of.size();
  const DataParallelCore::NamedParameters named = ddp.named_parameters();
  for (const auto& item : named) {
    const auto found = group_of.find(item.value().unsafeGetTensorImpl());
    if (found == group_of.end()) continue;
    const std::size_t group = found->second;
    group_of.erase(found);
    if (!item.value().requires_grad()) continue;
    parameters_.push_back(item.value());
    group_of_.push_back(group);
  }
  if (!group_of.empty())
    throw UsageError(c10::str("ShardedOptimizer: ", group_of.size(), " of the parameters in its groups are not the ",
                              "module's; take them from ddp.parameters() or ddp.named_parameters()"));
  if (parameters_.empty()) throw UsageError("ShardedOptimizer: no parameter requires a gradient");
  if (shared_) find_places();
}

void ShardedOptimizerBase::Impl::find_places() {
  std::unordered_map<const c10::TensorImpl*, std::size_t> places;
  for (const at::Tensor& parameter : shared_->parameters())
    places.emplace(parameter.unsafeGetTensorImpl(), places.size());
  for (const at::Tensor& parameter : parameters_) {
    const auto found = places.find(parameter.unsafeGetTensorImpl());
    if (found == places.end())
      throw UsageError(c10::str("ShardedOptimizer: a parameter of shape ", parameter.sizes(), " is not one that ",
                                "DistributedDataParallel averages: it required no gradient then, or is ignored"));
    places_.push_back(found->second);
  }
}

void ShardedOptimizerBase::Impl::flatten(const FlatLayout& layout) {
  for (const at::Tensor& parameter : parameters_)
    if (parameter.device() != parameters_.front().device())
      throw UsageError("ShardedOptimizer: the parameters are on several devices");
  memory_ = at::empty({static_cast<std::int64_t>(layout.bytes)},
                      parameters_.front().options().dtype(at::kByte).requires_grad(false));
  move_into(memory_, layout, parameters_, /*copies=*/true);
  begins_ = layout.begins;
}

void ShardedOptimizerBase::Impl::check_groups(const Groups& groups) const {
  std::size_t given = 0;
  for (const torch::optim::OptimizerParamGroup& group : groups) given += group.params().size();
  if (given != given_)
    throw UsageError(
        "ShardedOptimizer: parameters were added after it was made; pass all parameter groups to its constructor");
}

void ShardedOptimizerBase::Impl::check_places() const {
  const auto* const begin = static_cast<const std::byte*>(memory_.const_data_ptr());
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].numel() > 0 && parameters_[i].const_data_ptr() != begin + begins_[i])
      throw UsageError(c10::str("ShardedOptimizer: a parameter of shape ", parameters_[i].sizes(),
                                " is no longer in the ",
                                "memory that this optimizer moved it to: set_data() or a later ShardedOptimizer moved "
                                "it; make one optimizer for it, after it has its memory"));
}

OptimizerShard::GradientOf ShardedOptimizerBase::Impl::gradients() const {
  if (shared_) return [this](std::size_t parameter, int rank) { return shared_->gradient(places_[parameter], rank); };
  return [this](std::size_t parameter, int) {
    const at::Tensor& gradient = parameters_[parameter].grad();
    return gradient.defined() ? static_cast<std::byte*>(gradient.data_ptr()) : nullptr;
  };
}

bool ShardedOptimizerBase::Impl::step_shared(const Groups& groups, bool skips) {
  if (!has_shared_gradients()) return false;
  begin_use();
  const double divided_by = std::exchange(divisor_, 1.0) * group_->getSize();
  try {
    if (!skips) {
      const at::Tensor scale = at::full({}, divided_by, at::kFloat);
      if (undo_) undo_->begin_step();
      shard_->step(gradients(), groups,
                   {.has_sums = shared_->has_sums(),
                    .gradient_scale = divided_by == 1 ? std::nullopt : std::optional(scale),
                    .undo = undo_ ? &*undo_ : nullptr});
      if (undo_) undo_->end_step();
    }
    barrier(group_, {}, where_);
  } catch (const PeerLost& error) {
    if (undo_ && !skips) undo_->undo(error.ranks());
    throw;
  } catch (...) {
    if (undo_ && !skips) undo_->undo({});
    throw;
  }
  if (!skips) note_update();
  shared_->consume();
  return !skips;
}

bool ShardedOptimizerBase::Impl::has_shared_gradients() const {
  if (shared_->is_pending()) return true;
  for (const at::Tensor& parameter : parameters_)
    if (parameter.grad().defined())
      throw UsageError(c10::str("ShardedOptimizer: a parameter of shape ", parameter.sizes(),
                                " has a gradient of this ",
                                "rank alone: the last backward was in no_sync(), or ended by an error; call backward() "
                                "outside of no_sync() before step(), or zero_grad()"));
  return false;
}

/// The kernels and gather() write past the parameters. A graph that needs the values from before must not go on.
void ShardedOptimizerBase::Impl::note_update() {
  const OptimizerShard::GradientOf gradient_of = gradients();
  const int ranks = shared_ ? group_->getSize() : 1;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    for (int rank = 0; rank < ranks; ++rank) {
      if (gradient_of(i, rank) == nullptr) continue;
      parameters_[i].unsafeGetTensorImpl()->bump_version();
      break;
    }
}

/// A scale may be of gradients that the program has dropped.
void ShardedOptimizerBase::Impl::begin_use() {
  shared_->begin_use();
  if (!shared_->has_sums()) divisor_ = 1;
}

void ShardedOptimizerBase::Impl::gather() {
  if (group_->getSize() == 1) return;
  const std::int64_t slice = memory_.numel() / group_->getSize();
  all_gather_into_tensor(memory_, memory_.narrow(0, group_->getRank() * slice, slice), group_, {}, where_);
}

/// What sums of gradients must be divided by.
double ShardedOptimizerBase::Impl::divisor() const {
  return shared_ ? divisor_ * group_->getSize() : 1;
}

void ShardedOptimizerBase::Impl::scale(double factor) {
  if (shared_) {
    divisor_ /= factor;
    return;
  }
  if (factor == 1) return;
  for (const at::Tensor& parameter : parameters_)
    if (parameter.grad().defined()) parameter.mutable_grad().mul_(factor);
}

/// The common norm of what gradients() tells: averages, or sums, of all ranks. The same bits on all ranks.
double ShardedOptimizerBase::Impl::norm_of(double norm_type) {
  if (shared_) {
    if (!has_shared_gradients()) return 0;
    begin_use();
    if (!shared_->has_sums()) shard_->sum(gradients());
    shared_->note_sums();
  } else {
    for (const at::Tensor& parameter : parameters_) fit_gradient(parameter);
    shard_->sum(gradients());
  }
  const bool takes_greatest = std::isinf(norm_type);
  double total = 0;
  shard_->for_each_sum([&](const at::Tensor& sum) {
    const double norm = at::linalg_vector_norm(sum, norm_type).item<double>();
    // The greatest of anything and NaN is infinity, since MAX would lose a NaN.
    if (takes_greatest) total = std::isnan(norm) ? INFINITY : std::max(total, norm);
    if (!takes_greatest) total += std::pow(norm, norm_type);
  });
  if (group_->getSize() > 1) {
    const at::TensorOptions options(parameters_.front().device());
    const at::Tensor all = at::full({1}, total, options.dtype(at::kDouble));
    all_reduce(all, group_, {.op = takes_greatest ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM}, where_);
    total = all.item<double>();
  }
  return takes_greatest ? total : std::pow(total, 1 / norm_type);
}

}  // namespace retinue
