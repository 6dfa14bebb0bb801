#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <source_location>
#include <vector>

#include "retinue/torch/process_group.h"

/// Collectives that autograd differentiates, after torch.distributed.nn.functional.
///
/// They return a new tensor and leave their input as it is. backward() computes the gradient of the sum of all ranks'
/// losses: what this rank's input adds to any rank's loss counts. All ranks make the same calls in the same order, and
/// each rank's loss depends on each result, because backward makes a collective of all ranks too. If the input of one
/// rank requires a gradient, the results of all ranks do. Gradients of gradients work as well, if all ranks compute
/// them.
///
/// Blocking: until all ranks have called, at most the group's timeout; so does backward.
/// Threads: any, if all ranks make the same calls in the same order; of a backward, autograd's.
/// Errors: UsageError on all ranks, before any data is sent, if one rank's arguments are invalid, or if types, shapes
/// or arguments differ between ranks: it names the first rank that differs. Also if one rank calls under NoGradGuard
/// and the input of another one requires a gradient. PeerLost, TimeoutError and CollectiveMismatch as in
/// process_group.h, also out of backward.
/// After an error: after UsageError the group is usable.
/// Cost: the collective, and before it one small collective in which ranks compare their calls; backward makes no
/// comparison.
namespace retinue::functional {

struct AllReduceOptions {
  c10d::ReduceOp op = c10d::ReduceOp::SUM;
};

struct AllGatherOptions {
  std::int64_t dim = 0;  ///< Along which the ranks' tensors are joined; negative ones count from the last dimension.
};

struct ReduceScatterOptions {
  std::int64_t dim = 0;  ///< Along which the sum is divided; negative ones count from the last dimension.
  c10d::ReduceOp op = c10d::ReduceOp::SUM;
};

struct AllToAllOptions {
  /// Rows of the first dimension from, and for, each rank. Empty: the rows are divided evenly.
  std::vector<std::int64_t> output_split_sizes = {};
  std::vector<std::int64_t> input_split_sizes = {};
};

struct BroadcastOptions {
  int src = 0;
};

/// Returns the reduction of all ranks' tensors. Shape: as the input, the same on all ranks.
/// Gradient: the same reduction of all ranks' gradients, as in PyTorch: the sum for SUM, the average for AVG. Other
/// operations are refused if an input requires a gradient. (PyTorch reduces the gradients of MAX and MIN by MAX and
/// MIN, which is no gradient of anything.)
at::Tensor all_reduce(const at::Tensor& tensor, const ProcessGroup& group, const AllReduceOptions& options = {},
                      std::source_location where = std::source_location::current());

/// Returns all ranks' tensors, joined along a dimension in rank order. Shape: as the input, the same on all ranks, with
/// this dimension as many times as long as the group has ranks.
/// Gradient: the sum over ranks of the gradients of this rank's part.
at::Tensor all_gather(const at::Tensor& tensor, const ProcessGroup& group, AllGatherOptions options = {},
                      std::source_location where = std::source_location::current());

/// Returns this rank's part of the reduction of all ranks' tensors. Shape: as the input, the same on all ranks, with
/// the dimension divided by the number of ranks, which must divide it.
/// Gradient: all ranks' gradients, joined along the dimension; for AVG divided by the number of ranks, which PyTorch
/// leaves out. Operations other than SUM and AVG are refused if an input requires a gradient.
at::Tensor reduce_scatter(const at::Tensor& tensor, const ProcessGroup& group, const ReduceScatterOptions& options = {},
                          std::source_location where = std::source_location::current());

/// Returns the rows that the ranks sent to this rank, in rank order. Shape: the first dimension is the sum of
/// `output_split_sizes`; ranks may have different numbers of rows, the other dimensions are the same on all ranks. What
/// one rank sends to another must be what the other expects of it.
/// Gradient: goes back to the ranks that sent the rows.
at::Tensor all_to_all_single(const at::Tensor& tensor, const ProcessGroup& group, const AllToAllOptions& options = {},
                             std::source_location where = std::source_location::current());

/// Returns rank `src`'s tensor. Shape: as the input, the same on all ranks; the other ranks' values don't matter.
/// Gradient: on `src` the sum of all ranks' gradients, zeros on the others.
at::Tensor broadcast(const at::Tensor& tensor, const ProcessGroup& group, BroadcastOptions options = {},
                     std::source_location where = std::source_location::current());

}  // namespace retinue::functional
