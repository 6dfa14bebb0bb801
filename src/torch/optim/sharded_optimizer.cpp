#include "retinue/torch/sharded_optimizer.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>
#include <torch/serialize/archive.h>

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "retinue/base/error.h"
#include "torch/optim/sharded_steps.h"

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
  take_state_of_local();
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
  take_state_of_local();
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
  local_may_have_changed_ = false;  // It has the state before.
}

std::vector<ParameterSlice> ShardedOptimizerBase::slices() const {
  std::unordered_map<const c10::TensorImpl*, std::size_t> numbers;
  for (const OptimizerParamGroup& group : param_groups_)
    for (const at::Tensor& parameter : group.params()) numbers.emplace(parameter.unsafeGetTensorImpl(), numbers.size());
  std::vector<ParameterSlice> all;
  for (std::size_t i = 0; i < param_groups_.size(); ++i)
    for (const OptimizerShard::Slice& slice : impl_->shard().slices()) {
      if (slice.group != i) continue;
      const at::Tensor& parameter = impl_->parameters()[slice.range.parameter];
      all.push_back({numbers.at(parameter.unsafeGetTensorImpl()), slice.range.begin, slice.range.end});
    }
  return all;
}

torch::optim::Optimizer& ShardedOptimizerBase::local_optimizer() {
  take_state_of_local();
  std::vector<OptimizerParamGroup> groups;
  for (const OptimizerParamGroup& group : param_groups_)
    groups.emplace_back(std::vector<at::Tensor>(), group.options().clone());
  std::vector<std::pair<at::Tensor, const ElementState*>> parts;
  for (const OptimizerShard::Slice& slice : impl_->shard().slices()) {
    const at::Tensor& parameter = impl_->parameters()[slice.range.parameter];
    if (!parameter.is_contiguous())
      throw UsageError(c10::str("ShardedOptimizer: its state of a parameter of shape ", parameter.sizes(), " can't be ",
                                "saved in slices, because the parameter is not contiguous"));
    const at::Tensor part = elements_of(parameter.detach(), slice.range.begin, slice.range.end);
    groups[slice.group].params().push_back(part);
    parts.emplace_back(part, &slice.state);
  }
  local_ = impl_->algorithm().make_optimizer(std::move(groups));
  for (const auto& [part, state] : parts)
    if (state->first.defined()) local_->state()[part.unsafeGetTensorImpl()] = impl_->algorithm().wrap(*state);
  local_may_have_changed_ = true;
  return *local_;
}

void ShardedOptimizerBase::take_state_of_local() const {
  if (!std::exchange(local_may_have_changed_, false)) return;
  std::vector<std::size_t> next(param_groups_.size());
  const std::vector<OptimizerShard::Slice>& slices = impl_->shard().slices();
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const std::size_t group = slices[i].group;
    const at::Tensor& part = local_->param_groups()[group].params()[next[group]++];
    const auto found = local_->state().find(part.unsafeGetTensorImpl());
    const bool has_state = found != local_->state().end();
    impl_->shard().load(i, has_state ? impl_->algorithm().unwrap(*found->second) : ElementState());
  }
}

}  // namespace retinue
