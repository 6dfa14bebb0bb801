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

#include "retinue/base/detail/never.h"
#include "retinue/collective/options.h"
#include "retinue/ipc/job_group.h"

namespace retinue {

class RankContext;
class Store;

/// A group of ranks that work in step. It is c10d's own class, so code written for c10d works with it.
using ProcessGroup = c10::intrusive_ptr<c10d::ProcessGroup>;

/// An operation that may continue after its call has returned; null if the call waited for it.
using Work = c10::intrusive_ptr<c10d::Work>;

struct ProcessGroupOptions {
  /// "shm": for CPU tensors, through job memory if all ranks share it; otherwise all ranks use gloo, and rank 0 reports
  /// that on standard error. "gloo": gloo in any case. "cpu:shm" and "cpu:gloo" are the same. "cpu:shm,cuda:nccl" or
  /// "nccl": also CUDA tensors by NCCL, in builds with CUDA and where there is a GPU.
  std::string backend = "shm";
  std::string init_method = "env://";                            ///< As in WorldOptions (join_world.h).
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  ///< Longest wait of an operation for the other ranks.
  std::string group_name = {};           ///< Distinguishes several groups of the same ranks; equal on all of them.
  Waiting waiting = Waiting::kBalanced;  ///< How this rank waits for the others.
  /// When late ranks are reported, as in CommunicatorOptions; 0: never.
  std::optional<std::chrono::nanoseconds> late_after = std::nullopt;
  std::shared_ptr<Store> store = nullptr;  ///< Where the ranks meet, instead of `init_method`; see also C10dStore.
  int world_size = -1;                     ///< -1, as for `rank`: as the job or the environment specifies.
  int rank = -1;
};

/// Returns the group of all ranks of the context that started this rank, or the one that `options`, mpirun, srun,
/// torchrun or the environment specify. If nothing specifies one, it is a world of one. Under torchrun, ranks meet at
/// its agent's store.
///
/// Blocking: waits for all ranks, at most `options.timeout`.
/// Threads: the main thread must call it, unless Retinue started this rank.
/// Errors: as join_world(), except NotOneHost; UsageError for an address that other hosts can't reach.
ProcessGroup init_process_group(ProcessGroupOptions options = {},
                                std::source_location where = std::source_location::current());
ProcessGroup init_process_group(const RankContext& context, ProcessGroupOptions options = {},
                                std::source_location where = std::source_location::current());
/// Makes a group of any processes of a job.
ProcessGroup init_process_group(JobGroup members, ProcessGroupOptions options = {},
                                std::source_location where = std::source_location::current());

// Rejects a call that is written differently.
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

/// In the options of a call: it waits for other ranks at most for its group's timeout.
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
  /// Rows of the first dimension for, and from, each rank. Empty: all of the same size.
  std::vector<std::int64_t> output_split_sizes = {};
  std::vector<std::int64_t> input_split_sizes = {};
  bool async_op = false;
  std::chrono::milliseconds timeout = kGroupTimeout;
};

struct BarrierOptions {
  bool async_op = false;
  std::vector<std::int64_t> device_ids = {};  ///< The GPU that this rank waits with: for groups with nccl.
  std::chrono::milliseconds timeout = kGroupTimeout;
};

// All functions of groups take outputs, inputs, the group, and then the remaining arguments.
//
// The collectives below throw UsageError for tensors that they can't process correctly, such as CUDA tensors in a group
// without NCCL, before they send anything. In a group with NCCL, NCCL handles CUDA tensors and throws their errors.
// PeerLost, CollectiveMismatch and TimeoutError come from the call itself or, with `async_op`, from wait() and the
// work's future. With `async_op` the call never waits for other ranks, operations keep their order, and the tensor must
// not be used until the work is done. Tensors that are not contiguous go through a contiguous copy. A rank outside of a
// group has a null group: there barrier() does nothing and returns null, and the others throw UsageError, as they also
// do for a zero `timeout`.

/// Reduces the tensor over all ranks, in place, with the bits of the serial loop over ranks.
/// Bool tensors: SUM and MAX are "or", PRODUCT and MIN are "and". A sparse COO tensor becomes the coalesced sum; each
/// rank's elements may be at different indices. Other reductions and layouts are refused.
/// Cost: no copies for tensors in job memory (shared_empty).
Work all_reduce(const at::Tensor& tensor, const ProcessGroup& group, AllReduceOptions options = {},
                std::source_location where = std::source_location::current());
/// Reduces several tensors of one type in one operation; they must not overlap.
/// Cost: as one call, for any number. No copies if all are contiguous and in job memory, and there are at most 8192.
Work all_reduce_coalesced(const std::vector<at::Tensor>& tensors, const ProcessGroup& group,
                          AllReduceOptions options = {}, std::source_location where = std::source_location::current());
/// Does the same as all_reduce(), with the result at rank `options.dst` only; the other ranks' tensors are unchanged.
Work reduce(const at::Tensor& tensor, const ProcessGroup& group, ReduceOptions options = {},
            std::source_location where = std::source_location::current());

/// Reduces all ranks' r-th inputs into rank r's output. Shape: one input per rank, of the size of that rank's output.
Work reduce_scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs, const ProcessGroup& group,
                    ReduceScatterOptions options = {}, std::source_location where = std::source_location::current());
/// Does the same. Shape: `input` has as many elements as all ranks' outputs together, which are of one size.
Work reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input, const ProcessGroup& group,
                           ReduceScatterOptions options = {},
                           std::source_location where = std::source_location::current());

/// Copies the tensor of rank `options.src` to all ranks.
Work broadcast(const at::Tensor& tensor, const ProcessGroup& group, BroadcastOptions options = {},
               std::source_location where = std::source_location::current());

/// Gathers all inputs. Shape: `outputs` has one tensor per rank, with the type and element count of that rank's input.
Work all_gather(const std::vector<at::Tensor>& outputs, const at::Tensor& input, const ProcessGroup& group,
                AllGatherOptions options = {}, std::source_location where = std::source_location::current());
/// Does the same. Shape: `output` has as many elements as all ranks' inputs together, which are of one size.
Work all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input, const ProcessGroup& group,
                            AllGatherOptions options = {},
                            std::source_location where = std::source_location::current());
/// Gathers at one rank. Shape: as all_gather; `outputs` is empty on all ranks but `options.dst`.
Work gather(const std::vector<at::Tensor>& outputs, const at::Tensor& input, const ProcessGroup& group,
            GatherOptions options = {}, std::source_location where = std::source_location::current());
/// Copies the r-th input of rank `options.src` into rank r's output. Shape: `inputs` is empty on the other ranks.
Work scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs, const ProcessGroup& group,
             ScatterOptions options = {}, std::source_location where = std::source_location::current());

/// Copies the r-th input of rank s into the s-th output of rank r.
Work all_to_all(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                const ProcessGroup& group, AllToAllOptions options = {},
                std::source_location where = std::source_location::current());
/// Does the same between parts of one tensor each. The parts are rows of the first dimension.
Work all_to_all_single(const at::Tensor& output, const at::Tensor& input, const ProcessGroup& group,
                       AllToAllOptions options = {}, std::source_location where = std::source_location::current());

/// Returns, or completes, when all ranks have called it. A rank's n-th barrier meets the others' n-th, at any place of
/// the program. Without `device_ids` it waits for ranks, not for work on their GPUs.
/// Errors: UsageError for `device_ids` in a group without nccl, and for any number of them other than one.
Work barrier(const ProcessGroup& group, BarrierOptions options = {},
             std::source_location where = std::source_location::current());

}  // namespace retinue
