#include <c10/util/StringUtil.h>

#include "retinue/base/error.h"
#include "retinue/torch/tensor_parallel.h"
#include "torch/groups/make_group.h"
#include "torch/parallel/collective_nodes.h"

namespace retinue {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

CollectiveNodePtr make_region(std::string_view call, const at::Tensor& tensor, const ProcessGroup& group,
                              std::int64_t dim, const std::source_location& where) {
  checked_group(call, group);
  if (!tensor.defined()) throw UsageError(c10::str(call, ": the tensor is undefined"));
  if (dim < -tensor.dim() || dim >= tensor.dim())
    throw UsageError(c10::str(call, ": dim is ", dim, ", but the tensor has ", tensor.dim(), " dimensions"));
  auto node = c10::make_intrusive<CollectiveNode>();
  node->group = group;
  node->where = where;
  node->dim = dim < 0 ? dim + tensor.dim() : dim;
  return node;
}

at::Tensor part_of(const at::Tensor& tensor, const CollectiveNode& node) {
  const std::int64_t size = tensor.size(node.dim) / node.group->getSize();
  return tensor.narrow(node.dim, size * node.group->getRank(), size).clone(at::MemoryFormat::Contiguous);
}

// In each pair, one's backward is the other one's forward, so that gradients of gradients work too.

struct ReduceFromRegion;
struct CopyToRegion : Function<CopyToRegion> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor, const CollectiveNodePtr& node) {
    keep_node(context, node);
    return tensor.view_as(tensor);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients);
};

struct ReduceFromRegion : Function<ReduceFromRegion> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor, const CollectiveNodePtr& node) {
    keep_node(context, node);
    return all_reduced(tensor, *node);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {CopyToRegion::apply(gradients[0], kept_node<CollectiveNode>(context)), {}};
  }
};

variable_list CopyToRegion::backward(AutogradContext* context, const variable_list& gradients) {
  return {ReduceFromRegion::apply(gradients[0], kept_node<CollectiveNode>(context)), {}};
}

struct ScatterToRegion : Function<ScatterToRegion> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor, const CollectiveNodePtr& node) {
    keep_node(context, node);
    return part_of(tensor, *node);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients);
};

struct GatherFromRegion : Function<GatherFromRegion> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor, const CollectiveNodePtr& node) {
    keep_node(context, node);
    return all_gathered(tensor, *node);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {ScatterToRegion::apply(gradients[0], kept_node<CollectiveNode>(context)), {}};
  }
};

variable_list ScatterToRegion::backward(AutogradContext* context, const variable_list& gradients) {
  return {GatherFromRegion::apply(gradients[0], kept_node<CollectiveNode>(context)), {}};
}

}  // namespace

at::Tensor copy_to_tensor_model_parallel_region(const at::Tensor& tensor, const ProcessGroup& group,
                                                std::source_location where) {
  return CopyToRegion::apply(tensor, make_region("copy_to_tensor_model_parallel_region", tensor, group, -1, where));
}

at::Tensor reduce_from_tensor_model_parallel_region(const at::Tensor& tensor, const ProcessGroup& group,
                                                    std::source_location where) {
  return ReduceFromRegion::apply(tensor,
                                 make_region("reduce_from_tensor_model_parallel_region", tensor, group, -1, where));
}

at::Tensor scatter_to_tensor_model_parallel_region(const at::Tensor& tensor, const ProcessGroup& group,
                                                   std::int64_t dim, std::source_location where) {
  const auto node = make_region("scatter_to_tensor_model_parallel_region", tensor, group, dim, where);
  if (tensor.size(node->dim) % group->getSize() != 0)
    throw UsageError(c10::str("scatter_to_tensor_model_parallel_region: dimension ", node->dim, " of shape ",
                              tensor.sizes(), " can't be divided among ", group->getSize(), " ranks"));
  return ScatterToRegion::apply(tensor, node);
}

at::Tensor gather_from_tensor_model_parallel_region(const at::Tensor& tensor, const ProcessGroup& group,
                                                    std::int64_t dim, std::source_location where) {
  return GatherFromRegion::apply(tensor,
                                 make_region("gather_from_tensor_model_parallel_region", tensor, group, dim, where));
}

}  // namespace retinue
