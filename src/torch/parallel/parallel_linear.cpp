#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/torch/tensor_parallel.h"
#include "torch/groups/make_group.h"
#include "torch/groups/rank_agreement.h"

namespace retinue {
namespace {

/// Empty if a layer can have these sizes.
std::string problem_of_sizes(std::int64_t in_features, std::int64_t out_features) {
  if (in_features > 0 && out_features > 0) return "";
  return c10::str("in_features is ", in_features, " and out_features ", out_features, ": both must be greater than 0");
}

/// Whether the ranks make the same layer, which they can divide. Errors: UsageError on all ranks.
void compare_layers(const std::string& call, const ProcessGroup& group, const std::vector<std::int64_t>& layer,
                    std::int64_t divided, const char* divided_name, const std::source_location& where) {
  checked_group(call, group);
  std::string problem = problem_of_sizes(layer[0], layer[1]);
  if (problem.empty() && divided % group->getSize() != 0)
    problem = c10::str(divided_name, " is ", divided, ", which can't be divided among ", group->getSize(), " ranks");
  const RankNumbers all = agree(call, group, layer, problem, where);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw UsageError(c10::str(call, ": the ranks' layers differ: rank 0 has ", all[0][0], " in_features, ", all[0][1],
                                " out_features, bias ", all[0][2], " and option ", all[0][3], ", but rank ", rank,
                                " has ", all[rank][0], ", ", all[rank][1], ", ", all[rank][2], " and ", all[rank][3],
                                ", or another type; make the same layer on all ranks"));
}

std::vector<std::int64_t> numbers_of(const torch::nn::Linear& full, bool option) {
  return {full->options.in_features(), full->options.out_features(), full->bias.defined(), option,
          static_cast<std::int64_t>(full->weight.scalar_type())};
}

/// Gives each rank its part of rank 0's tensor.
void take_part(const at::Tensor& part, const at::Tensor& full, std::int64_t dim, const ProcessGroup& group,
               const std::source_location& where) {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  if (group->getRank() == 0)
    for (const at::Tensor& each : full.detach().chunk(group->getSize(), dim)) parts.push_back(each.contiguous());
  scatter(part, parts, group, {}, where);
}

void take_whole(const at::Tensor& mine, const at::Tensor& full, const ProcessGroup& group,
                const std::source_location& where) {
  const c10::NoGradGuard no_grad;
  mine.copy_(full);
  broadcast(mine, group, {}, where);
}

torch::nn::Linear make_linear(std::int64_t in_features, std::int64_t out_features, bool bias) {
  return torch::nn::Linear(torch::nn::LinearOptions(in_features, out_features).bias(bias));
}

/// A Linear whose values don't matter, if its sizes are invalid: all ranks say so.
torch::nn::Linear checked_linear(const char* call, std::int64_t in_features, std::int64_t out_features, bool bias,
                                 const ProcessGroup& group, const std::source_location& where) {
  checked_group(call, group);
  agree(call, group, {}, problem_of_sizes(in_features, out_features), where);
  return make_linear(in_features, out_features, bias);
}

}  // namespace

ColumnParallelLinearImpl::ColumnParallelLinearImpl(std::int64_t in_features, std::int64_t out_features,
                                                   ProcessGroup group, ColumnParallelLinearOptions options,
                                                   std::source_location where)
    : ColumnParallelLinearImpl(
          checked_linear("ColumnParallelLinear", in_features, out_features, options.bias, group, where), group, options,
          where) {}

ColumnParallelLinearImpl::ColumnParallelLinearImpl(const torch::nn::Linear& full, ProcessGroup group,
                                                   ColumnParallelLinearOptions options, std::source_location where)
    : in_features_(full->options.in_features()),
      out_features_(full->options.out_features()),
      group_(std::move(group)),
      options_(options),
      where_(where) {
  options_.bias = full->bias.defined();
  compare_layers("ColumnParallelLinear", group_, numbers_of(full, options.gather_output), out_features_, "out_features",
                 where);
  ColumnParallelLinearImpl::reset();
  to(full->weight.device(), full->weight.scalar_type());
  take_part(weight, full->weight, 0, group_, where);
  if (options_.bias) take_part(bias, full->bias, 0, group_, where);
}

void ColumnParallelLinearImpl::reset() {
  const std::int64_t part = out_features_ / group_->getSize();
  weight = register_parameter("weight", at::empty({part, in_features_}));
  bias = register_parameter("bias", options_.bias ? at::empty({part}) : at::Tensor(), options_.bias);
}

at::Tensor ColumnParallelLinearImpl::forward(const at::Tensor& input) {
  const at::Tensor part = at::linear(copy_to_tensor_model_parallel_region(input, group_, where_), weight, bias);
  return options_.gather_output ? gather_from_tensor_model_parallel_region(part, group_, -1, where_) : part;
}

torch::nn::Linear ColumnParallelLinearImpl::to_linear(std::source_location where) const {
  const c10::NoGradGuard no_grad;
  torch::nn::Linear full = make_linear(in_features_, out_features_, options_.bias);
  full->to(weight.device(), weight.scalar_type());
  full->weight.copy_(gather_from_tensor_model_parallel_region(weight, group_, 0, where));
  if (options_.bias) full->bias.copy_(gather_from_tensor_model_parallel_region(bias, group_, 0, where));
  return full;
}

void ColumnParallelLinearImpl::pretty_print(std::ostream& stream) const {
  stream << c10::str(std::boolalpha, "retinue::ColumnParallelLinear(in_features=", in_features_,
                     ", out_features=", out_features_, ", bias=", options_.bias,
                     ", gather_output=", options_.gather_output, ", ranks=", group_->getSize(), ")");
}

RowParallelLinearImpl::RowParallelLinearImpl(std::int64_t in_features, std::int64_t out_features, ProcessGroup group,
                                             RowParallelLinearOptions options, std::source_location where)
    : RowParallelLinearImpl(checked_linear("RowParallelLinear", in_features, out_features, options.bias, group, where),
                            group, options, where) {}

RowParallelLinearImpl::RowParallelLinearImpl(const torch::nn::Linear& full, ProcessGroup group,
                                             RowParallelLinearOptions options, std::source_location where)
    : in_features_(full->options.in_features()),
      out_features_(full->options.out_features()),
      group_(std::move(group)),
      options_(options),
      where_(where) {
  options_.bias = full->bias.defined();
  compare_layers("RowParallelLinear", group_, numbers_of(full, options.input_is_parallel), in_features_, "in_features",
                 where);
  RowParallelLinearImpl::reset();
  to(full->weight.device(), full->weight.scalar_type());
  take_part(weight, full->weight, 1, group_, where);
  if (options_.bias) take_whole(bias, full->bias, group_, where);
}

void RowParallelLinearImpl::reset() {
  weight = register_parameter("weight", at::empty({out_features_, in_features_ / group_->getSize()}));
  bias = register_parameter("bias", options_.bias ? at::empty({out_features_}) : at::Tensor(), options_.bias);
}

at::Tensor RowParallelLinearImpl::forward(const at::Tensor& input) {
  const at::Tensor part =
      options_.input_is_parallel ? input : scatter_to_tensor_model_parallel_region(input, group_, -1, where_);
  const at::Tensor sum = reduce_from_tensor_model_parallel_region(at::linear(part, weight), group_, where_);
  return options_.bias ? sum + bias : sum;
}

torch::nn::Linear RowParallelLinearImpl::to_linear(std::source_location where) const {
  const c10::NoGradGuard no_grad;
  torch::nn::Linear full = make_linear(in_features_, out_features_, options_.bias);
  full->to(weight.device(), weight.scalar_type());
  full->weight.copy_(gather_from_tensor_model_parallel_region(weight, group_, 1, where));
  if (options_.bias) full->bias.copy_(bias);
  return full;
}

void RowParallelLinearImpl::pretty_print(std::ostream& stream) const {
  stream << c10::str(std::boolalpha, "retinue::RowParallelLinear(in_features=", in_features_,
                     ", out_features=", out_features_, ", bias=", options_.bias,
                     ", input_is_parallel=", options_.input_is_parallel, ", ranks=", group_->getSize(), ")");
}

}  // namespace retinue
