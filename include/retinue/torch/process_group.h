#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "retinue/base/never.h"
#include "retinue/collective/options.h"
#include "retinue/ipc/job_group.h"

namespace retinue {

class RankContext;
class Store;

/// A group of ranks that step together. It is c10d's own class, so code written for c10d works on it.
using ProcessGroup = c10::intrusive_ptr<c10d::ProcessGroup>;

/// An operation that goes on after the call returned; null when the call waited for it.
using Work = c10::intrusive_ptr<c10d::Work>;

struct ProcessGroupOptions {
  /// "shm": for CPU tensors, through job memory, where all ranks have the same; otherwise all of them use gloo, and
  /// rank 0 says so on standard error. "gloo": that in any case. "cpu:shm" and "cpu:gloo" are the same.
  /// "cpu:shm,cuda:nccl" or "nccl": CUDA tensors by NCCL besides, in builds with CUDA and where there is a GPU.
  std::string backend = "shm";
  std::string init_method = "env://";                            ///< As WorldOptions has it (join_world.h).
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  ///< Longest wait of an operation for the other ranks.
  std::string group_name = {};           ///< Set it to have several groups of the same ranks, the same on all of them.
  Waiting waiting = Waiting::kBalanced;  ///< How this rank waits for the others.
  /// When waits have their late ranks reported, as CommunicatorOptions has it; 0: never.
  std::optional<std::chrono::nanoseconds> late_after = std::nullopt;
  std::shared_ptr<Store> store = nullptr;  ///< Where the ranks meet, in place of `init_method`; see also C10dStore.
  int world_size = -1;                     ///< -1, as `rank`: as the job or the environment says.
  int rank = -1;
};

/// The group of all ranks of the context that started this one, or of those that `options`, mpirun, srun, torchrun or
/// the environment say; a world of one where nobody says anything. Under torchrun ranks meet at its agent's store.
///
/// Blocking: waits for all ranks, at most `options.timeout`.
/// Threads: called by the main thread, unless Retinue started this rank.
/// Errors: as join_world()'s, but for NotOneHost; UsageError for an address that other hosts can't reach.
ProcessGroup init_process_group(ProcessGroupOptions options = {},
                                std::source_location where = std::source_location::current());
ProcessGroup init_process_group(const RankContext& context, ProcessGroupOptions options = {},
                                std::source_location where = std::source_location::current());
/// Of any processes of a job.
ProcessGroup init_process_group(JobGroup members, ProcessGroupOptions options = {},
                                std::source_location where = std::source_location::current());

// What is written otherwise.
template <std::convertible_to<std::string_view> Backend, class... More>
ProcessGroup init_process_group(const Backend&, const More&...) {
  static_assert(detail::kNever<Backend>,
                "init_process_group takes options: write init_process_group({.backend = \"gloo\"})");
  return {};
}
template <std::convertible_to<std::string_view> Backend, class... More>
ProcessGroup init_process_group(const RankContext&, const Backend&, const More&...) {
  static_assert(detail::kNever<Backend>,
                "init_process_group takes options: write init_process_group(context, {.backend = \"gloo\"})");
  return {};
}

/// In the options of a call: it waits for other ranks as long as its group says.
inline constexpr std::chrono::milliseconds kGroupTimeout{-1};

struct AllReduceOptions {
  c10d::ReduceOp op = c10d::ReduceOp::SUM;
  bool async_op = false;
  std::chrono::milliseconds timeout = kGroupTimeout;
};

struct ReduceOptions {
  int dst = 0;
  c10d::ReduceOp op = c10d::ReduceOp::SUM;
  bool async_op = false;
  std::chrono::milliseconds timeout = kGroupTimeout;
};

struct ReduceScatterOptions {
  c10d::ReduceOp op = c10d::ReduceOp::SUM;
  bool async_op = false;
  std::chrono::milliseconds timeout = kGroupTimeout;
};

struct BroadcastOptions {
  int src = 0;
  bool async_op = false;
  std::chrono::milliseconds timeout = kGroupTimeout;
};

struct GatherOptions {
  int dst = 0;
  bool async_op = false;
  std::chrono::milliseconds timeout = kGroupTimeout;
};

struct ScatterOptions {
  int src = 0;
  bool async_op = false;
  std::chrono::milliseconds timeout = kGroupTimeout;
};

struct AllGatherOptions {
  bool async_op = false;
  std::chrono::milliseconds timeout = kGroupTimeout;
};

struct AllToAllOptions {
  /// Rows of the first dimension for, and from, each rank. Empty: all of one size.
  std::vector<std::int64_t> output_split_sizes = {};
  std::vector<std::int64_t> input_split_sizes = {};
  bool async_op = false;
  std::chrono::milliseconds timeout = kGroupTimeout;
};

struct BarrierOptions {
  bool async_op = false;
  std::vector<std::int64_t> device_ids = {};  ///< The GPU that this rank waits with: for groups that have nccl.
  std::chrono::milliseconds timeout = kGroupTimeout;
};

// All functions of groups take outputs, inputs, the group, and then what else there is.
//
// The collectives below throw UsageError for tensors that they cannot do right, CUDA tensors of a group without NCCL
// among them, before anything is sent; those of a group with it are NCCL's, as are their errors. PeerLost,
// CollectiveMismatch and TimeoutError come from the call itself, or with `async_op` from wait() and from the work's
// future. With `async_op` the call never waits for other ranks, operations keep their order, and the tensor must be
// left alone until the work is done. Tensors that are not contiguous go through a contiguous copy. A null group is that
// of a rank outside of it: barrier() does nothing there and gives null, the others throw UsageError; so they do for a
// `timeout` of nothing.

/// Reduces the tensor over all ranks, in place, with the bits of the serial loop over ranks.
/// Bool tensors: SUM and MAX are "or", PRODUCT and MIN are "and". A sparse tensor of coordinates becomes the coalesced
/// sum, where each rank's elements may be at places of their own; other reductions and layouts are refused.
/// Cost: nothing is copied for tensors in job memory (shared_empty).
Work all_reduce(const at::Tensor& tensor, const ProcessGroup& group, AllReduceOptions options = {},
                std::source_location where = std::source_location::current());
/// The same for several tensors of one type in one operation; they must not overlap.
/// Cost: one call's, whatever their number. Nothing is copied where all are contiguous, in job memory, and at most
/// 8192.
Work all_reduce_coalesced(const std::vector<at::Tensor>& tensors, const ProcessGroup& group,
                          AllReduceOptions options = {}, std::source_location where = std::source_location::current());
/// The same with the result at rank `options.dst` alone; the other ranks' tensors keep their contents.
Work reduce(const at::Tensor& tensor, const ProcessGroup& group, ReduceOptions options = {},
            std::source_location where = std::source_location::current());

/// Reduces all ranks' r-th inputs into rank r's output. Shape: one input per rank, of the size of that rank's output.
Work reduce_scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs, const ProcessGroup& group,
                    ReduceScatterOptions options = {}, std::source_location where = std::source_location::current());
/// Shape: `input` holds as many elements as all ranks' outputs together, which are of one size.
Work reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input, const ProcessGroup& group,
                           ReduceScatterOptions options = {},
                           std::source_location where = std::source_location::current());

/// Copies the tensor of rank `options.src` to all ranks.
Work broadcast(const at::Tensor& tensor, const ProcessGroup& group, BroadcastOptions options = {},
               std::source_location where = std::source_location::current());

/// Shape: `outputs` holds one tensor per rank, of the type and number of elements of that rank's input.
Work all_gather(const std::vector<at::Tensor>& outputs, const at::Tensor& input, const ProcessGroup& group,
                AllGatherOptions options = {}, std::source_location where = std::source_location::current());
/// Shape: `output` holds as many elements as all ranks' inputs together, which are of one size.
Work all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input, const ProcessGroup& group,
                            AllGatherOptions options = {},
                            std::source_location where = std::source_location::current());
/// Shape: as all_gather; `outputs` is empty on all ranks but `options.dst`.
Work gather(const std::vector<at::Tensor>& outputs, const at::Tensor& input, const ProcessGroup& group,
            GatherOptions options = {}, std::source_location where = std::source_location::current());
/// Copies the r-th input of rank `options.src` into rank r's output. Shape: `inputs` is empty on the other ranks.
Work scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs, const ProcessGroup& group,
             ScatterOptions options = {}, std::source_location where = std::source_location::current());

/// Copies the r-th input of rank s into the s-th output of rank r.
Work all_to_all(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                const ProcessGroup& group, AllToAllOptions options = {},
                std::source_location where = std::source_location::current());
/// The same between parts of one tensor each, which are rows of its first dimension.
Work all_to_all_single(const at::Tensor& output, const at::Tensor& input, const ProcessGroup& group,
                       AllToAllOptions options = {}, std::source_location where = std::source_location::current());

/// Returns, or completes, when all ranks have called it. A rank's n-th barrier meets the others' n-th, wherever in the
/// program they are.
/// Without `device_ids` it waits for ranks, not for what their GPUs do.
/// Errors: UsageError for `device_ids` in a group without nccl, and for others than one.
Work barrier(const ProcessGroup& group, BarrierOptions options = {},
             std::source_location where = std::source_location::current());

}  // namespace retinue
