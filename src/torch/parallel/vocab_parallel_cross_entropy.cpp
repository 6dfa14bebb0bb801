#include <ATen/ops/arange.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/stack.h>
#include <c10/util/StringUtil.h>

#include <numeric>
#include <string>

#include "retinue/base/error.h"
#include "retinue/torch/tensor_parallel.h"
#include "torch/groups/make_group.h"
#include "torch/groups/rank_agreement.h"
#include "torch/parallel/collective_nodes.h"

namespace retinue {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr const char* kCrossEntropy = "vocab_parallel_cross_entropy";

/// The losses of all targets, from logits [targets, classes of this rank]; `own`: targets counted from this rank's
/// first class, where they are this rank's.
struct CrossEntropyNode : Function<CrossEntropyNode> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& own,
                            const at::Tensor& is_own, const at::Tensor& counts, const CollectiveNodePtr& node) {
    const bool has_classes = logits.size(1) > 0;
    at::Tensor greatest =
        has_classes ? logits.amax(1) : logits.new_full({logits.size(0)}, -std::numeric_limits<double>::infinity());
    retinue::all_reduce(greatest, node->group, {.op = c10d::ReduceOp::MAX}, node->where);
    at::Tensor softmax = at::exp(logits - greatest.unsqueeze(1));
    at::Tensor of_target = logits.new_zeros({logits.size(0)});
    if (has_classes) of_target = logits.gather(1, own.unsqueeze(1)).squeeze(1).masked_fill(is_own.logical_not(), 0);
    const at::Tensor sums = at::stack({softmax.sum(1), of_target});
    retinue::all_reduce(sums, node->group, {}, node->where);
    softmax.div_(sums[0].unsqueeze(1));
    context->save_for_backward({softmax, own, is_own, counts});
    return (sums[0].log() + greatest - sums[1]).masked_fill(counts.logical_not(), 0);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_create_graph(kCrossEntropy);
    const variable_list saved = context->get_saved_variables();
    at::Tensor gradient = saved[0].clone();
    if (gradient.size(1) > 0)
      gradient.scatter_add_(1, saved[1].unsqueeze(1), saved[2].to(gradient.scalar_type()).neg().unsqueeze(1));
    gradient.mul_(gradients[0].masked_fill(saved[3].logical_not(), 0).unsqueeze(1));
    return {gradient, {}, {}, {}, {}};
  }
};

/// Why this rank's arguments are invalid whatever the others have; empty if they aren't.
std::string problem_of(const at::Tensor& logits, const at::Tensor& target) {
  if (!logits.defined() || !target.defined()) return "logits or target are undefined";
  if (!logits.is_floating_point())
    return c10::str("logits are of type ", c10::toString(logits.scalar_type()), ", which isn't a floating-point type");
  if (target.scalar_type() != at::kLong)
    return c10::str("target is of type ", c10::toString(target.scalar_type()),
                    ": it needs class indices, of type Long");
  if (logits.dim() == 0 || logits.sizes().slice(0, static_cast<std::size_t>(logits.dim() - 1)) != target.sizes())
    return c10::str("logits have shape ", logits.sizes(), " and target ", target.sizes(),
                    ": target needs the shape of logits without the last dimension");
  return {};
}

struct Agreed {
  std::int64_t first_class = 0;  ///< Of this rank.
  std::int64_t classes = 0;      ///< Of all ranks.
};

/// Compares what the ranks have. Errors: UsageError on all ranks.
Agreed compare(const at::Tensor& logits, const at::Tensor& target, const ProcessGroup& group,
               const VocabParallelCrossEntropyOptions& options, const std::source_location& where) {
  const std::string problem = problem_of(logits, target);
  std::vector<std::int64_t> numbers(6);
  if (problem.empty()) {
    // Sums of products with distinct factors, modulo 2^64.
    const at::Tensor factors = at::arange(1, target.numel() + 1, target.options());
    numbers = {logits.size(-1),
               static_cast<std::int64_t>(logits.scalar_type()),
               target.numel(),
               (target.flatten() * factors).sum().item<std::int64_t>(),
               static_cast<std::int64_t>(options.reduction),
               options.ignore_index};
  }
  const RankNumbers all = agree(kCrossEntropy, group, numbers, problem, where);
  Agreed agreed;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (std::size_t i = 1; i < numbers.size(); ++i)
      if (all[rank][i] != all[0][i])
        throw UsageError(c10::str(kCrossEntropy, ": rank ", rank, " has other ",
                                  i == 1   ? "types of logits"
                                  : i == 2 ? "numbers of targets"
                                  : i == 3 ? "targets"
                                           : "options",
                                  " than rank 0: only the classes of logits are divided, all else is the same"));
    if (static_cast<int>(rank) < group->getRank()) agreed.first_class += all[rank][0];
    agreed.classes += all[rank][0];
  }
  return agreed;
}

}  // namespace

at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits, const at::Tensor& target, const ProcessGroup& group,
                                        VocabParallelCrossEntropyOptions options, std::source_location where) {
  checked_group(kCrossEntropy, group);
  const Agreed agreed = compare(logits, target, group, options, where);
  const at::Tensor counts = target.flatten().ne(options.ignore_index);
  const at::Tensor classes = target.flatten().masked_select(counts);
  // All ranks have the same targets, so they all find this.
  if (classes.numel() > 0 &&
      (classes.min().item<std::int64_t>() < 0 || classes.max().item<std::int64_t>() >= agreed.classes))
    throw UsageError(c10::str(kCrossEntropy, ": targets are between ", classes.min().item<std::int64_t>(), " and ",
                              classes.max().item<std::int64_t>(), ", but all ranks together have classes 0 to ",
                              agreed.classes - 1));
  const std::int64_t own_classes = logits.size(-1);
  at::Tensor own = target.flatten() - agreed.first_class;
  const at::Tensor is_own = counts & own.ge(0) & own.lt(own_classes);
  own = own.masked_fill(is_own.logical_not(), 0);
  const auto node = c10::make_intrusive<CollectiveNode>();
  node->group = group;
  node->where = where;
  const bool is_short = logits.scalar_type() == at::kHalf || logits.scalar_type() == at::kBFloat16;
  const at::Tensor rows = logits.reshape({target.numel(), own_classes});
  const at::Tensor losses = CrossEntropyNode::apply(is_short ? rows.to(at::kFloat) : rows, own, is_own, counts, node)
                                .to(logits.scalar_type());
  using Reduction = VocabParallelCrossEntropyOptions::Reduction;
  if (options.reduction == Reduction::kNone) return losses.view(target.sizes());
  return options.reduction == Reduction::kSum ? losses.sum() : losses.sum() / counts.sum();
}

}  // namespace retinue
