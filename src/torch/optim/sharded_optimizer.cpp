#include "retinue/torch/sharded_optimizer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "retinue/base/error.h"
#include "torch/optim/optimizer_shard.h"
#include "torch/optim/optimizer_slices.h"
#include "torch/optim/optimizer_update.h"
#include "torch/training/shared_parameters.h"

namespace retinue {
namespace {

using torch::optim::OptimizerParamGroup;

void write_number(torch::serialize::OutputArchive& archive, const char* name, std::int64_t value) {
  archive.write(name, at::empty({}, at::kLong).fill_(value), /*is_buffer=*/true);
}

std::int64_t read_number(torch::serialize::InputArchive& archive, const char* name) {
  at::Tensor value;
  if (!archive.try_read(name, value, /*is_buffer=*/true))
    throw UsageError(
        c10::str("ShardedOptimizer: the archive has no \"", name, "\", so it is none of a ShardedOptimizer"));
  return value.item<std::int64_t>();
}

}  // namespace

class ShardedOptimizerBase::Impl {
 public:
  Impl(ShardedOptimizerAlgorithm algorithm, DataParallelCore& ddp, const std::vector<OptimizerParamGroup>& groups,
       std::source_location where)
      : update_(algorithm), group_(ddp.group()), shared_(ddp.shared_gradients()), where_(where) {
    take_parameters(ddp, groups);
    const FlatLayout layout(parameters_, group_->getSize());
    if (shared_ && group_->getSize() > 1) undo_.emplace(parameters_, layout, group_);
    if (!shared_) flatten(layout);
    ranges_ = slice_of(layout, parameters_, group_->getRank(), group_->getSize());
    shard_.emplace(parameters_, ranges_, group_of_, update_, shared_ ? group_->getRank() : 0,
                   shared_ ? group_->getSize() : 1);
  }

  OptimizerShard& shard() { return *shard_; }
  const OptimizerShard& shard() const { return *shard_; }
  const OptimizerUpdate& algorithm() const { return update_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  const ProcessGroup& group() const { return group_; }

  /// Returns whether anything was updated.
  bool step(const std::vector<OptimizerParamGroup>& groups) {
    check_groups(groups);
    const bool skips = std::exchange(skips_, false);
    if (shared_) return step_shared(groups, skips);
    if (skips) return false;
    for (const at::Tensor& parameter : parameters_) fit_gradient(parameter);
    shard_->step(gradients(), groups, std::nullopt, nullptr);
    gather();
    return true;
  }

  double clip(double max_norm, double norm_type) {
    if (!(max_norm > 0)) throw UsageError("clip_grad_norm_: max_norm must be above 0");
    if (!(norm_type > 0)) throw UsageError("clip_grad_norm_: norm_type must be above 0");
    const double norm = norm_of(norm_type) / divisor();
    const double factor = std::min(1.0, max_norm / (norm + 1e-6));  // As PyTorch does.
    scale(factor);
    return norm;
  }

  bool unscale(double loss_scale) {
    if (!(loss_scale > 0) || !std::isfinite(loss_scale))
      throw UsageError("unscale_: loss_scale must be above 0, and finite");
    skips_ = !std::isfinite(norm_of(INFINITY));
    scale(1 / loss_scale);
    return !skips_;
  }

 private:
  void take_parameters(DataParallelCore& ddp, const std::vector<OptimizerParamGroup>& groups) {
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

  void find_places() {
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

  void flatten(const FlatLayout& layout) {
    for (const at::Tensor& parameter : parameters_)
      if (parameter.device() != parameters_.front().device())
        throw UsageError("ShardedOptimizer: the parameters are on several devices");
    memory_ = at::empty({static_cast<std::int64_t>(layout.bytes)},
                        parameters_.front().options().dtype(at::kByte).requires_grad(false));
    move_into(memory_, layout, parameters_, /*copies=*/true);
  }

  void check_groups(const std::vector<OptimizerParamGroup>& groups) const {
    std::size_t given = 0;
    for (const OptimizerParamGroup& group : groups) given += group.params().size();
    if (given != given_)
      throw UsageError(
          "ShardedOptimizer: parameters were added after it was made; pass all parameter groups to its constructor");
  }

  /// The kernels go through memory, so that gradients must lie as their parameters do.
  static void fit_gradient(const at::Tensor& parameter) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) return;
    if (gradient.layout() != at::kStrided)
      throw UsageError(c10::str("ShardedOptimizer: the gradient of a parameter of shape ", parameter.sizes(),
                                " has the layout ", gradient.layout(), ", which is not supported"));
    if (gradient.strides() == parameter.strides()) return;
    gradient = at::empty_strided(parameter.sizes(), parameter.strides(), gradient.options()).copy_(gradient);
  }

  OptimizerShard::GradientOf gradients() const {
    if (shared_) return [this](std::size_t parameter, int rank) { return shared_->gradient(places_[parameter], rank); };
    return [this](std::size_t parameter, int) {
      const at::Tensor& gradient = parameters_[parameter].grad();
      return gradient.defined() ? static_cast<std::byte*>(gradient.data_ptr()) : nullptr;
    };
  }

  bool step_shared(const std::vector<OptimizerParamGroup>& groups, bool skips) {
    if (!shared_->is_pending()) return false;
    shared_->begin_use();
    const double divided_by = std::exchange(divisor_, 1.0) * group_->getSize();
    try {
      if (!skips) {
        const at::Tensor scale = at::full({}, divided_by, at::kFloat);
        if (undo_) undo_->begin_step();
        shard_->step(gradients(), groups, divided_by == 1 ? std::nullopt : std::optional(scale),
                     undo_ ? &*undo_ : nullptr);
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
    shared_->consume();
    return !skips;
  }

  void gather() {
    if (group_->getSize() == 1) return;
    const std::int64_t slice = memory_.numel() / group_->getSize();
    all_gather_into_tensor(memory_, memory_.narrow(0, group_->getRank() * slice, slice), group_, {}, where_);
  }

  /// What sums of gradients must be divided by.
  double divisor() const { return shared_ ? divisor_ * group_->getSize() : 1; }

  void scale(double factor) {
    if (shared_) {
      divisor_ /= factor;
      return;
    }
    if (factor == 1) return;
    for (const at::Tensor& parameter : parameters_)
      if (parameter.grad().defined()) parameter.mutable_grad().mul_(factor);
  }

  /// The common norm of what gradients() tells: averages, or sums, of all ranks. The same bits on all ranks.
  double norm_of(double norm_type) {
    if (shared_) {
      if (!shared_->is_pending()) return 0;
      shared_->begin_use();
      shared_->note_sums();
    } else {
      for (const at::Tensor& parameter : parameters_) fit_gradient(parameter);
    }
    if (!shared_ || !shard_->has_sums()) shard_->sum(gradients());
    const bool takes_greatest = std::isinf(norm_type);
    double total = 0;
    shard_->for_each_sum([&](const at::Tensor& sum) {
      const double norm = at::linalg_vector_norm(sum, norm_type).item<double>();
      // The greatest of anything and NaN is infinity, since MAX would lose a NaN.
      if (takes_greatest) total = std::isnan(norm) ? INFINITY : std::max(total, norm);
      if (!takes_greatest) total += std::pow(norm, norm_type);
    });
    if (!shared_) shard_->forget_sums();
    if (group_->getSize() > 1) {
      const at::TensorOptions options(parameters_.front().device());
      const at::Tensor all = at::full({1}, total, options.dtype(at::kDouble));
      all_reduce(all, group_, {.op = takes_greatest ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM}, where_);
      total = all.item<double>();
    }
    return takes_greatest ? total : std::pow(total, 1 / norm_type);
  }

  OptimizerUpdate update_;
  ProcessGroup group_;
  std::shared_ptr<SharedGradients> shared_;  ///< Null: each rank has all parameters.
  std::source_location where_;
  std::size_t given_ = 0;  ///< Parameters in the groups.
  std::vector<at::Tensor> parameters_;
  std::vector<std::size_t> group_of_;
  std::vector<std::size_t> places_;  ///< In `shared_`.
  std::vector<ElementRange> ranges_;
  at::Tensor memory_;  ///< Of all parameters, if they are not shared.
  std::optional<UndoLog> undo_;
  std::optional<OptimizerShard> shard_;
  double divisor_ = 1;
  bool skips_ = false;
};

ShardedOptimizerBase::ShardedOptimizerBase(ShardedOptimizerAlgorithm algorithm, DataParallelCore& ddp,
                                           std::vector<OptimizerParamGroup> groups,
                                           std::unique_ptr<torch::optim::OptimizerOptions> defaults,
                                           std::source_location where)
    : Optimizer(groups, std::move(defaults)), impl_(std::make_unique<Impl>(algorithm, ddp, groups, where)) {}

ShardedOptimizerBase::~ShardedOptimizerBase() = default;

at::Tensor ShardedOptimizerBase::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    const c10::AutoGradMode with_grad(true);
    loss = closure();
  }
  const c10::NoGradGuard no_grad;
  if (impl_->step(param_groups())) {
    for (const OptimizerShard::Slice& slice : impl_->shard().slices())
      state_[impl_->parameters()[slice.range.parameter].unsafeGetTensorImpl()] = impl_->algorithm().wrap(slice.state);
  }
  return loss;
}

double ShardedOptimizerBase::clip_grad_norm_(double max_norm, double norm_type) {
  const c10::NoGradGuard no_grad;
  return impl_->clip(max_norm, norm_type);
}

bool ShardedOptimizerBase::unscale_(double loss_scale) {
  const c10::NoGradGuard no_grad;
  return impl_->unscale(loss_scale);
}

void ShardedOptimizerBase::save(torch::serialize::OutputArchive& archive) const {
  write_number(archive, "rank", impl_->group()->getRank());
  write_number(archive, "ranks", impl_->group()->getSize());
  const std::vector<OptimizerShard::Slice>& slices = impl_->shard().slices();
  write_number(archive, "slices", static_cast<std::int64_t>(slices.size()));
  for (std::size_t i = 0; i < slices.size(); ++i) {
    torch::serialize::OutputArchive one(archive.compilation_unit());
    write_number(one, "begin", slices[i].range.begin);
    write_number(one, "end", slices[i].range.end);
    impl_->algorithm().wrap(slices[i].state)->serialize(one);
    archive.write(c10::str("slice", i), one);
  }
  for (std::size_t i = 0; i < param_groups_.size(); ++i) {
    torch::serialize::OutputArchive options(archive.compilation_unit());
    param_groups_[i].options().serialize(options);
    archive.write(c10::str("options", i), options);
  }
}

void ShardedOptimizerBase::load(torch::serialize::InputArchive& archive) {
  const ProcessGroup& group = impl_->group();
  const std::int64_t rank = read_number(archive, "rank"), ranks = read_number(archive, "ranks");
  if (rank != group->getRank() || ranks != group->getSize())
    throw UsageError(c10::str("ShardedOptimizer: the archive has the state of rank ", rank, " of ", ranks,
                              ", but this ", "is rank ", group->getRank(), " of ", group->getSize()));
  std::vector<OptimizerShard::Slice> loaded = impl_->shard().slices();
  bool fits = read_number(archive, "slices") == static_cast<std::int64_t>(loaded.size());
  for (std::size_t i = 0; fits && i < loaded.size(); ++i) {
    torch::serialize::InputArchive one;
    archive.read(c10::str("slice", i), one);
    fits = read_number(one, "begin") == loaded[i].range.begin && read_number(one, "end") == loaded[i].range.end;
    const auto state = impl_->algorithm().empty_state();
    if (fits) state->serialize(one);
    loaded[i].state = impl_->algorithm().unwrap(*state);
  }
  if (!fits) throw UsageError("ShardedOptimizer: the archive's slices are not those of this optimizer's parameters");
  for (std::size_t i = 0; i < param_groups_.size(); ++i) {
    torch::serialize::InputArchive options;
    archive.read(c10::str("options", i), options);
    param_groups_[i].options().serialize(options);
  }
  for (std::size_t i = 0; i < loaded.size(); ++i) impl_->shard().load(i, loaded[i].state);
}

std::vector<ShardedOptimizerBase::Slice> ShardedOptimizerBase::slices() const {
  std::vector<Slice> slices;
  for (const OptimizerShard::Slice& slice : impl_->shard().slices())
    slices.push_back({impl_->parameters()[slice.range.parameter], slice.range.begin, slice.range.end});
  return slices;
}

}  // namespace retinue
