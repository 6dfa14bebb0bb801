#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <optional>
#include <source_location>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/torch/process_group.h"

namespace retinue {

/// A collective that autograd differentiates; its backward is one of these too. All ranks' calls fit each other.
struct CollectiveNode : torch::CustomClassHolder {
  ProcessGroup group;
  std::source_location where;
  c10d::ReduceOp op = c10d::ReduceOp::SUM;
  std::int64_t dim = 0;
  int root = 0;
  std::vector<std::int64_t> output_splits = {};  ///< In rows.
  std::vector<std::int64_t> input_splits = {};
};
using CollectiveNodePtr = c10::intrusive_ptr<CollectiveNode>;

/// Each takes a tensor. An `anchor` requires a gradient: with it the result does so, whether or not the tensor does.
using Anchor = std::optional<at::Tensor>;
at::Tensor differentiable_all_reduce(const at::Tensor& tensor, const Anchor& anchor, const CollectiveNodePtr& node);
at::Tensor differentiable_all_gather(const at::Tensor& tensor, const Anchor& anchor, const CollectiveNodePtr& node);
at::Tensor differentiable_reduce_scatter(const at::Tensor& tensor, const Anchor& anchor, const CollectiveNodePtr& node);
at::Tensor differentiable_all_to_all(const at::Tensor& tensor, const Anchor& anchor, const CollectiveNodePtr& node);
at::Tensor differentiable_broadcast(const at::Tensor& tensor, const Anchor& anchor, const CollectiveNodePtr& node);

/// The same without autograd, for tensors of fitting shapes.
at::Tensor all_reduced(const at::Tensor& tensor, const CollectiveNode& node);
at::Tensor all_gathered(const at::Tensor& tensor, const CollectiveNode& node);

/// What a node of autograd keeps from forward to backward.
inline void keep_node(torch::autograd::AutogradContext* context,
                      const c10::intrusive_ptr<torch::CustomClassHolder>& node) {
  context->saved_data["node"] = c10::IValue::make_capsule(node);
}
template <class Node>
c10::intrusive_ptr<Node> kept_node(torch::autograd::AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<Node>(context->saved_data["node"].toCapsule());
}

/// In a backward that autograd can't differentiate. Errors: UsageError if it was asked to.
inline void refuse_create_graph(const char* call) {
  if (c10::GradMode::is_enabled())
    throw UsageError(c10::str(call, ": its backward has no gradient: call backward() without create_graph"));
}

}  // namespace retinue
