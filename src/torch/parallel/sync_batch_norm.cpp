#include "retinue/torch/sync_batch_norm.h"

#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>
#include <torch/nn/functional/batchnorm.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "retinue/base/error.h"
#include "torch/groups/make_group.h"
#include "torch/groups/rank_agreement.h"
#include "torch/parallel/collective_nodes.h"

namespace retinue {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr const char* kSyncBatchNorm = "SyncBatchNorm";

/// Over all ranks, in double.
struct JoinedMoments {
  at::Tensor mean;
  at::Tensor variance;  ///< Biased.
  double count = 0;     ///< Of the values of each channel.
  bool wants_gradient = false;
};

/// What a rank tells the others: these, and then its means and sums of squared differences from them.
enum MomentsTold : std::int64_t { kCount, kMinusTextBytes, kWantsInput, kHasGradMode, kFirstMoment };

at::Tensor own_moments(const at::Tensor& input, std::int64_t channels, const std::string& problem,
                       at::TensorOptions options) {
  const at::Tensor told = at::zeros({kFirstMoment + 2 * channels}, options.device(at::kCPU));
  auto* const numbers = told.data_ptr<double>();
  numbers[kMinusTextBytes] = -static_cast<double>(problem.size());
  if (!problem.empty()) return told.to(options.device());
  const std::int64_t count = input.numel() / channels;
  numbers[kCount] = static_cast<double>(count);
  numbers[kHasGradMode] = c10::GradMode::is_enabled();
  numbers[kWantsInput] = c10::GradMode::is_enabled() && input.requires_grad();
  at::Tensor all = told.to(options.device());
  if (count == 0) return all;
  const c10::NoGradGuard no_grad;
  const bool is_short = input.scalar_type() == at::kHalf || input.scalar_type() == at::kBFloat16;
  // Three times as fast as var_mean(), on CPUs.
  const auto [mean, variance] =
      at::batch_norm_update_stats(is_short ? input.to(at::kFloat) : input, /*running_mean=*/{}, /*running_var=*/{}, 0);
  all.narrow(0, kFirstMoment, channels).copy_(mean);
  all.narrow(0, kFirstMoment + channels, channels).copy_(variance).mul_(static_cast<double>(count));
  return all;
}

void check_gradients(const double* numbers, int ranks, std::int64_t width) {
  for (int asks = 0; asks < ranks; ++asks)
    for (int refuses = 0; refuses < ranks; ++refuses)
      if (numbers[asks * width + kWantsInput] != 0 && numbers[refuses * width + kHasGradMode] == 0)
        throw UsageError(c10::str(kSyncBatchNorm, ": the input of rank ", asks, " requires a gradient, but rank ",
                                  refuses,
                                  " calls forward without gradients (NoGradGuard); use NoGradGuard on all "
                                  "ranks or on none"));
}

/// Blocking: one collective. Errors: UsageError on all ranks.
JoinedMoments join_moments(const at::Tensor& input, std::int64_t channels, const std::string& problem,
                           const ProcessGroup& group, const std::source_location& where) {
  const auto options = at::TensorOptions(at::kDouble).device(input.defined() ? input.device() : at::Device(at::kCPU));
  const at::Tensor mine = own_moments(input, channels, problem, options);
  const int ranks = group->getSize();
  const std::int64_t width = mine.numel();
  const c10::NoGradGuard no_grad;
  const at::Tensor all = at::empty({ranks, width}, options);
  all_gather_into_tensor(all, mine, group, {}, where);
  const at::Tensor on_cpu = all.cpu();
  const auto* const numbers = on_cpu.const_data_ptr<double>();
  JoinedMoments joined;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto text_bytes = -static_cast<std::int64_t>(numbers[rank * width + kMinusTextBytes]);
    if (text_bytes != 0)
      throw UsageError(
          c10::str(kSyncBatchNorm, ": rank ", rank, ": ", tell_all(problem, text_bytes, rank, group, where)));
    joined.count += numbers[rank * width + kCount];
    joined.wants_gradient |= numbers[rank * width + kWantsInput] != 0;
  }
  if (joined.wants_gradient) check_gradients(numbers, ranks, width);
  if (joined.count <= 1)
    throw UsageError(c10::str(kSyncBatchNorm, ": all ranks together have ", joined.count,
                              " values for each channel: training needs more than one"));
  const at::Tensor counts = all.narrow(1, kCount, 1);
  const at::Tensor means = all.narrow(1, kFirstMoment, channels);
  joined.mean = (means * counts).sum(0) / joined.count;
  const at::Tensor between = (means - joined.mean).square() * counts;
  joined.variance = (all.narrow(1, kFirstMoment + channels, channels) + between).sum(0) / joined.count;
  return joined;
}

/// What the node of autograd knows besides tensors.
struct NormNode : torch::CustomClassHolder {
  ProcessGroup group;
  std::source_location where;
  double eps = 0;
  double count = 0;
  bool wants_input = false;  ///< On some rank: then all ranks sum in backward.
};
using NormNodePtr = c10::intrusive_ptr<NormNode>;

/// [channels] as it is broadcast over the input.
at::Tensor by_channel(const at::Tensor& values, const at::Tensor& input) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(input.dim()), 1);
  sizes[1] = values.numel();
  return values.view(sizes);
}

struct SyncBatchNormNode : Function<SyncBatchNormNode> {
  using MaybeTensor = std::optional<at::Tensor>;

  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const MaybeTensor& weight,
                            const MaybeTensor& bias, const Anchor& /*anchor*/, const at::Tensor& mean,
                            const at::Tensor& variance, const NormNodePtr& node) {
    keep_node(context, node);
    context->save_for_backward({input, weight.value_or(at::Tensor()), mean, variance});
    context->saved_data["has_bias"] = bias.has_value();
    if (input.numel() == 0) return at::empty_like(input);
    return std::get<0>(
        at::native_batch_norm(input, weight, bias, mean, variance, /*training=*/false, /*momentum=*/0, node->eps));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_create_graph(kSyncBatchNorm);
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& input = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor& mean = saved[2];
    const auto node = kept_node<NormNode>(context);
    const at::Tensor scale = (saved[3] + node->eps).rsqrt();
    // As if mean and variance were constants; sums are of the gradients, and of their products with normalised values.
    at::Tensor of_input = at::zeros_like(input);
    at::Tensor of_weight = at::zeros_like(mean);
    at::Tensor of_bias = at::zeros_like(mean);
    if (input.numel() != 0)
      std::tie(of_input, of_weight, of_bias) = at::native_batch_norm_backward(
          gradients[0].contiguous(input.suggest_memory_format()), input,
          weight.defined() ? weight : at::ones_like(mean), mean, saved[3], /*save_mean=*/{}, /*save_invstd=*/{},
          /*train=*/false, node->eps, {true, true, true});
    if (node->wants_input) {
      const at::Tensor sums = at::stack({of_bias, of_weight}).to(at::kDouble);
      retinue::all_reduce(sums, node->group, {}, node->where);
      sums.div_(node->count);
      const at::Tensor factor = weight.defined() ? scale * weight : scale;
      const at::Tensor shift = (sums[0] * factor).to(mean.scalar_type());
      const at::Tensor slope = (sums[1] * factor * scale).to(mean.scalar_type());
      const at::Tensor change =
          (input - by_channel(mean, input)).mul_(by_channel(slope, input)).add_(by_channel(shift, input));
      of_input = (of_input - change).to(input.scalar_type());
    }
    const bool has_bias = context->saved_data["has_bias"].toBool();
    return {of_input,
            weight.defined() ? of_weight.to(weight.scalar_type()) : at::Tensor(),
            has_bias ? of_bias : at::Tensor(),
            {},
            {},
            {},
            {}};
  }
};

std::string problem_of(const at::Tensor& input, std::int64_t channels) {
  if (!input.defined()) return "the input is undefined";
  if (input.dim() < 2 || input.size(1) != channels)
    return c10::str("the input has shape ", input.sizes(), ": it needs shape [batch, ", channels, ", ...]");
  if (!input.is_floating_point()) return c10::str("the input is of type ", c10::toString(input.scalar_type()));
  return {};
}

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(const torch::nn::BatchNormOptions& options, ProcessGroup group,
                                     std::source_location where)
    : NormImplBase(options), group_(std::move(group)), where_(where) {
  checked_group(kSyncBatchNorm, group_);
}

void SyncBatchNormImpl::_check_input_dim(const at::Tensor& input) {
  const std::string problem = problem_of(input, options.num_features());
  if (!problem.empty()) throw UsageError(c10::str(kSyncBatchNorm, ": ", problem));
}

/// Returns the weight of the new batch in running statistics.
double SyncBatchNormImpl::count_batch() {
  if (!options.track_running_stats()) return 0;
  num_batches_tracked += 1;
  return options.momentum().value_or(1.0 / static_cast<double>(num_batches_tracked.item<std::int64_t>()));
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  if (!is_training()) {
    _check_input_dim(input);
    return torch::nn::functional::detail::batch_norm(input, running_mean, running_var, weight, bias,
                                                     /*training=*/!options.track_running_stats(), /*momentum=*/0,
                                                     options.eps());
  }
  const std::int64_t channels = options.num_features();
  const JoinedMoments joined = join_moments(input, channels, problem_of(input, channels), group_, where_);
  const double share = count_batch();
  if (options.track_running_stats()) {
    const c10::NoGradGuard no_grad;
    const at::Tensor unbiased = joined.variance * (joined.count / (joined.count - 1));
    running_mean.mul_(1 - share).add_((joined.mean * share).to(running_mean.scalar_type()));
    running_var.mul_(1 - share).add_((unbiased * share).to(running_var.scalar_type()));
  }
  const auto node = c10::make_intrusive<NormNode>();
  node->group = group_;
  node->where = where_;
  node->eps = options.eps();
  node->count = joined.count;
  node->wants_input = joined.wants_gradient;
  const bool is_short = input.scalar_type() == at::kHalf || input.scalar_type() == at::kBFloat16;
  const at::ScalarType type = is_short ? at::kFloat : input.scalar_type();
  const auto maybe = [](const at::Tensor& tensor) { return tensor.defined() ? Anchor(tensor) : std::nullopt; };
  const Anchor anchor = joined.wants_gradient ? Anchor(at::empty({0}).requires_grad_()) : std::nullopt;
  return SyncBatchNormNode::apply(input, maybe(weight), maybe(bias), anchor, joined.mean.to(type),
                                  joined.variance.to(type), node);
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << c10::str(std::boolalpha, "retinue::SyncBatchNorm(", options.num_features(), ", eps=", options.eps(),
                     ", momentum=", options.momentum() ? c10::str(*options.momentum()) : "None",
                     ", affine=", options.affine(), ", track_running_stats=", options.track_running_stats(),
                     ", ranks=", group_->getSize(), ")");
}

}  // namespace retinue
