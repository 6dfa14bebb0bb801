#include "retinue/torch/functional.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceType.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <utility>

#include "retinue/base/error.h"
#include "torch/groups/make_group.h"
#include "torch/groups/rank_agreement.h"
#include "torch/parallel/collective_nodes.h"

namespace retinue::functional {
namespace {

enum class Kind : std::int64_t { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kBroadcast };
constexpr std::array kNames{"all_reduce", "all_gather", "reduce_scatter", "all_to_all_single", "broadcast"};
constexpr std::array kOps{"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
constexpr std::size_t kMostDimensions = 16;

/// What a rank tells the others of its call.
enum Told : std::size_t { kWantsGradient, kGradMode, kKind, kOp, kDim, kRoot, kType, kDevice, kDimensions, kSizes };

std::string name_of(std::int64_t kind) {
  return c10::str("functional::", kNames.at(static_cast<std::size_t>(kind)));
}

bool has_dim(const std::vector<std::int64_t>& told) {
  const auto kind = static_cast<Kind>(told[kKind]);
  return kind == Kind::kAllGather || kind == Kind::kReduceScatter;
}

std::string text_of(const std::vector<std::int64_t>& told) {
  const auto kind = static_cast<Kind>(told[kKind]);
  const auto dimensions = static_cast<std::size_t>(told[kDimensions]);
  std::string text = name_of(told[kKind]);
  if (kind == Kind::kAllReduce || kind == Kind::kReduceScatter)
    text += c10::str(" by ", kOps.at(static_cast<std::size_t>(told[kOp])));
  text += c10::str(" of a tensor of type ", c10::toString(static_cast<at::ScalarType>(told[kType])), " and shape ",
                   at::IntArrayRef(told.data() + kSizes, dimensions), " on ",
                   c10::DeviceTypeName(static_cast<c10::DeviceType>(told[kDevice]), /*lower_case=*/true));
  if (has_dim(told)) text += c10::str(" along dimension ", told[kDim]);
  if (kind == Kind::kBroadcast) text += c10::str(" from rank ", told[kRoot]);
  return text;
}

/// Whether two ranks' calls fit.
bool are_same(std::vector<std::int64_t> one, std::vector<std::int64_t> other) {
  if (static_cast<Kind>(one[kKind]) == Kind::kAllToAll) one[kSizes] = other[kSizes];  // Rows may differ.
  return std::equal(one.begin() + kKind, one.end(), other.begin() + kKind, other.end());
}

bool is_linear(const c10d::ReduceOp& op) {
  return op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG;
}

/// A call of this rank, until it fits those of the others.
class Call {
 public:
  Call(Kind kind, const at::Tensor& tensor, const ProcessGroup& group, const std::source_location& where)
      : kind_(kind), tensor_(tensor), node_(c10::make_intrusive<CollectiveNode>()) {
    checked_group(name(), group);
    node_->group = group;
    node_->where = where;
    if (!tensor.defined())
      refuse("the tensor is undefined");
    else if (tensor.layout() != at::kStrided)
      refuse(c10::str("the tensor's layout is ", tensor.layout(), ": pass a dense tensor, such as its to_dense()"));
    else if (tensor.sizes().size() > kMostDimensions)
      refuse(c10::str("the tensor has ", tensor.dim(), " dimensions, more than ", kMostDimensions));
  }

  CollectiveNode& node() { return *node_; }
  int ranks() const { return node_->group->getSize(); }
  bool is_valid() const { return problem_.empty(); }
  void refuse(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }

  void set_op(const c10d::ReduceOp& op) {
    node_->op = op;
    if (is_valid() && wants_gradient() && !is_linear(op))
      refuse(c10::str("the tensor requires a gradient, and ", kOps.at(static_cast<std::size_t>(op.op_)),
                      " has none here: use SUM or AVG, or pass its detach()"));
  }
  void set_dim(std::int64_t dim) {
    if (!is_valid()) return;
    const std::int64_t dimensions = tensor_.dim();
    if (dim < -dimensions || dim >= dimensions)
      return refuse(c10::str("dim is ", dim, ", but the tensor has ", dimensions, " dimensions"));
    node_->dim = dim < 0 ? dim + dimensions : dim;
  }
  void require_rows() {
    if (is_valid() && tensor_.dim() == 0) refuse("the tensor has no dimension: pass its unsqueeze(0)");
  }

  /// Blocking: one small collective. Errors: UsageError on all ranks.
  void compare() {
    const RankNumbers all = agree(name(), node_->group, told(), problem_, node_->where);
    for (std::size_t rank = 1; rank < all.size(); ++rank)
      if (!are_same(all[0], all[rank]))
        throw UsageError(c10::str(name(), ": the ranks' calls differ: rank 0 calls ", text_of(all[0]), ", but rank ",
                                  rank, " calls ", text_of(all[rank])));
    const auto asks = std::ranges::find_if(all, [](const auto& told) { return told[kWantsGradient] != 0; });
    if (asks == all.end()) return;
    const auto refuses = std::ranges::find_if(all, [](const auto& told) { return told[kGradMode] == 0; });
    if (refuses != all.end())
      throw UsageError(c10::str(name(), ": the tensor of rank ", asks - all.begin(), " requires a gradient, but rank ",
                                refuses - all.begin(),
                                " calls without gradients (NoGradGuard), and so would not come to the backward; use "
                                "NoGradGuard on all ranks or on none"));
    if (!tensor_.requires_grad()) anchor_ = at::empty({0}).requires_grad_();
  }

  template <typename Differentiable>
  at::Tensor run(Differentiable collective) {
    return collective(tensor_, anchor_, node_);
  }

  std::string name() const { return name_of(static_cast<std::int64_t>(kind_)); }

 private:
  bool wants_gradient() const { return c10::GradMode::is_enabled() && tensor_.requires_grad(); }

  std::vector<std::int64_t> told() const {
    std::vector<std::int64_t> told(kSizes + kMostDimensions);
    if (!is_valid()) return told;
    told[kWantsGradient] = wants_gradient();
    told[kGradMode] = c10::GradMode::is_enabled();
    told[kKind] = static_cast<std::int64_t>(kind_);
    told[kOp] = static_cast<std::int64_t>(node_->op.op_);
    told[kDim] = node_->dim;
    told[kRoot] = node_->root;
    told[kType] = static_cast<std::int64_t>(tensor_.scalar_type());
    told[kDevice] = static_cast<std::int64_t>(tensor_.device().type());
    told[kDimensions] = tensor_.dim();
    std::ranges::copy(tensor_.sizes(), told.begin() + kSizes);
    return told;
  }

  Kind kind_;
  const at::Tensor& tensor_;
  Anchor anchor_;
  CollectiveNodePtr node_;
  std::string problem_;
};

/// Splits as rows per rank. Refuses those that don't fit `rows`, which is -1 if any sum is right.
std::vector<std::int64_t> checked_splits(Call& call, const char* name, const std::vector<std::int64_t>& asked,
                                         std::int64_t rows, std::int64_t rows_if_empty) {
  const int ranks = call.ranks();
  if (asked.empty()) {
    if (rows_if_empty % ranks != 0)
      call.refuse(c10::str(name, " is empty, but ", ranks, " ranks don't divide ", rows_if_empty, " rows evenly"));
    return std::vector<std::int64_t>(static_cast<std::size_t>(ranks), rows_if_empty / ranks);
  }
  const bool is_negative = std::ranges::any_of(asked, [](std::int64_t split) { return split < 0; });
  const std::int64_t sum = std::accumulate(asked.begin(), asked.end(), std::int64_t{0});
  if (asked.size() != static_cast<std::size_t>(ranks) || is_negative || (rows >= 0 && sum != rows))
    call.refuse(c10::str(name, " is ", at::IntArrayRef(asked), ": it needs a number of rows for each of ", ranks,
                         " ranks", rows >= 0 ? c10::str(", together the tensor's ", rows) : ""));
  return asked;
}

/// Whether each rank expects what the others send. Errors: UsageError on all ranks.
void compare_splits(const Call& call, const CollectiveNode& node) {
  std::vector<std::int64_t> splits = node.input_splits;
  splits.insert(splits.end(), node.output_splits.begin(), node.output_splits.end());
  const RankNumbers all = agree(call.name(), node.group, splits, {}, node.where);
  const std::size_t ranks = all.size();
  for (std::size_t from = 0; from < ranks; ++from)
    for (std::size_t to = 0; to < ranks; ++to)
      if (all[from][to] != all[to][ranks + from])
        throw UsageError(c10::str(call.name(), ": rank ", from, " sends ", all[from][to], " rows to rank ", to,
                                  ", which expects ", all[to][ranks + from],
                                  ": input_split_sizes and output_split_sizes must fit each other"));
}

}  // namespace

at::Tensor all_reduce(const at::Tensor& tensor, const ProcessGroup& group, const AllReduceOptions& options,
                      std::source_location where) {
  Call call(Kind::kAllReduce, tensor, group, where);
  call.set_op(options.op);
  call.compare();
  return call.run(differentiable_all_reduce);
}

at::Tensor all_gather(const at::Tensor& tensor, const ProcessGroup& group, AllGatherOptions options,
                      std::source_location where) {
  Call call(Kind::kAllGather, tensor, group, where);
  call.set_dim(options.dim);
  call.compare();
  return call.run(differentiable_all_gather);
}

at::Tensor reduce_scatter(const at::Tensor& tensor, const ProcessGroup& group, const ReduceScatterOptions& options,
                          std::source_location where) {
  Call call(Kind::kReduceScatter, tensor, group, where);
  call.set_op(options.op);
  call.set_dim(options.dim);
  if (call.is_valid() && tensor.size(call.node().dim) % call.ranks() != 0)
    call.refuse(c10::str("dimension ", call.node().dim, " of shape ", tensor.sizes(), " can't be divided among ",
                         call.ranks(), " ranks"));
  call.compare();
  return call.run(differentiable_reduce_scatter);
}

at::Tensor all_to_all_single(const at::Tensor& tensor, const ProcessGroup& group, const AllToAllOptions& options,
                             std::source_location where) {
  Call call(Kind::kAllToAll, tensor, group, where);
  call.require_rows();
  if (call.is_valid()) {
    const std::int64_t rows = tensor.size(0);
    CollectiveNode& node = call.node();
    node.input_splits = checked_splits(call, "input_split_sizes", options.input_split_sizes, rows, rows);
    node.output_splits = checked_splits(call, "output_split_sizes", options.output_split_sizes, -1, rows);
  }
  call.compare();
  compare_splits(call, call.node());
  return call.run(differentiable_all_to_all);
}

at::Tensor broadcast(const at::Tensor& tensor, const ProcessGroup& group, BroadcastOptions options,
                     std::source_location where) {
  Call call(Kind::kBroadcast, tensor, group, where);
  call.node().root = options.src;
  if (options.src < 0 || options.src >= call.ranks())
    call.refuse(c10::str("src is ", options.src, ", but the group has ranks 0 to ", call.ranks() - 1));
  call.compare();
  return call.run(differentiable_broadcast);
}

}  // namespace retinue::functional
