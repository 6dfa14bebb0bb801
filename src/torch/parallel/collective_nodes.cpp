#include "torch/parallel/collective_nodes.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

namespace retinue {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

CollectiveNodePtr copy_of(const CollectiveNode& node) {
  return c10::make_intrusive<CollectiveNode>(node);
}

at::Tensor contiguous_copy(const at::Tensor& tensor) {
  return tensor.detach().clone(at::MemoryFormat::Contiguous);
}

/// This rank's part of the reduction of all ranks' tensors.
at::Tensor reduce_scattered(const at::Tensor& tensor, const CollectiveNode& node) {
  const int ranks = node.group->getSize();
  const at::Tensor parts = at::stack(tensor.chunk(ranks, node.dim));
  at::Tensor part = at::empty(parts.sizes().slice(1), parts.options());
  reduce_scatter_tensor(part, parts, node.group, {.op = node.op}, node.where);
  return part;
}

at::Tensor exchanged(const at::Tensor& tensor, const CollectiveNode& node) {
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  sizes[0] = 0;
  for (const std::int64_t rows : node.output_splits) sizes[0] += rows;
  at::Tensor received = at::empty(sizes, tensor.options());
  all_to_all_single(received, tensor.contiguous(), node.group,
                    {.output_split_sizes = node.output_splits, .input_split_sizes = node.input_splits}, node.where);
  return received;
}

struct AllReduceNode : Function<AllReduceNode> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor, const Anchor& /*anchor*/,
                            const CollectiveNodePtr& node) {
    keep_node(context, node);
    return all_reduced(tensor, *node);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {differentiable_all_reduce(gradients[0], {}, kept_node<CollectiveNode>(context)), {}, {}};
  }
};

struct AllGatherNode : Function<AllGatherNode> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor, const Anchor& /*anchor*/,
                            const CollectiveNodePtr& node) {
    keep_node(context, node);
    return all_gathered(tensor, *node);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {differentiable_reduce_scatter(gradients[0], {}, kept_node<CollectiveNode>(context)), {}, {}};
  }
};

struct ReduceScatterNode : Function<ReduceScatterNode> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor, const Anchor& /*anchor*/,
                            const CollectiveNodePtr& node) {
    keep_node(context, node);
    return reduce_scattered(tensor, *node);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto node = kept_node<CollectiveNode>(context);
    const auto gather = copy_of(*node);
    gather->op = c10d::ReduceOp::SUM;
    at::Tensor gathered = differentiable_all_gather(gradients[0], {}, gather);
    if (node->op == c10d::ReduceOp::AVG) gathered = gathered / node->group->getSize();
    return {gathered, {}, {}};
  }
};

struct AllToAllNode : Function<AllToAllNode> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor, const Anchor& /*anchor*/,
                            const CollectiveNodePtr& node) {
    keep_node(context, node);
    return exchanged(tensor, *node);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto back = copy_of(*kept_node<CollectiveNode>(context));
    std::swap(back->input_splits, back->output_splits);
    return {differentiable_all_to_all(gradients[0], {}, back), {}, {}};
  }
};

/// To the root; zeros on the other ranks.
struct ReduceNode : Function<ReduceNode> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor, const CollectiveNodePtr& node) {
    keep_node(context, node);
    at::Tensor sum = contiguous_copy(tensor);
    reduce(sum, node->group, {.dst = node->root}, node->where);
    return node->group->getRank() == node->root ? sum : sum.zero_();
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {differentiable_broadcast(gradients[0], {}, kept_node<CollectiveNode>(context)), {}};
  }
};

struct BroadcastNode : Function<BroadcastNode> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor, const Anchor& /*anchor*/,
                            const CollectiveNodePtr& node) {
    keep_node(context, node);
    at::Tensor copy = contiguous_copy(tensor);
    broadcast(copy, node->group, {.src = node->root}, node->where);
    return copy;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {ReduceNode::apply(gradients[0], kept_node<CollectiveNode>(context)), {}, {}};
  }
};

}  // namespace

at::Tensor all_reduced(const at::Tensor& tensor, const CollectiveNode& node) {
  at::Tensor copy = contiguous_copy(tensor);
  all_reduce(copy, node.group, {.op = node.op}, node.where);
  return copy;
}

at::Tensor all_gathered(const at::Tensor& tensor, const CollectiveNode& node) {
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  sizes.insert(sizes.begin(), node.group->getSize());
  const at::Tensor parts = at::empty(sizes, tensor.options());
  all_gather_into_tensor(parts, tensor.contiguous(), node.group, {}, node.where);
  return node.dim == 0 ? parts.flatten(0, 1) : at::cat(parts.unbind(), node.dim);
}

at::Tensor differentiable_all_reduce(const at::Tensor& tensor, const Anchor& anchor, const CollectiveNodePtr& node) {
  return AllReduceNode::apply(tensor, anchor, node);
}

at::Tensor differentiable_all_gather(const at::Tensor& tensor, const Anchor& anchor, const CollectiveNodePtr& node) {
  return AllGatherNode::apply(tensor, anchor, node);
}

at::Tensor differentiable_reduce_scatter(const at::Tensor& tensor, const Anchor& anchor,
                                         const CollectiveNodePtr& node) {
  return ReduceScatterNode::apply(tensor, anchor, node);
}

at::Tensor differentiable_all_to_all(const at::Tensor& tensor, const Anchor& anchor, const CollectiveNodePtr& node) {
  return AllToAllNode::apply(tensor, anchor, node);
}

at::Tensor differentiable_broadcast(const at::Tensor& tensor, const Anchor& anchor, const CollectiveNodePtr& node) {
  return BroadcastNode::apply(tensor, anchor, node);
}

}  // namespace retinue
