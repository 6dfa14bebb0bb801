#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <source_location>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "retinue/ipc/job_group.h"

namespace retinue {

class RankContext;

/// A group of ranks that step together. It is c10d's own class, so code written for c10d works on it.
using ProcessGroup = c10::intrusive_ptr<c10d::ProcessGroup>;

/// An operation that goes on after the call returned; null when the call waited for it.
using Work = c10::intrusive_ptr<c10d::Work>;

struct ProcessGroupOptions {
  std::string backend = "shm";                                   ///< "shm": ranks of one host, through job memory.
  std::string init_method = "env://";                            ///< "env://": the job that started this process.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  ///< Longest wait of an operation for the other ranks.
  std::string group_name = {};  ///< Set it to have several groups of the same ranks, the same on all of them.
};

/// The group of all ranks of the context that started this one; a world of one in a process that nobody started as a
/// rank.
///
/// Blocking: waits for all ranks, at most `options.timeout`.
/// Errors: UsageError when the environment is another launcher's; PeerLost, TimeoutError.
ProcessGroup init_process_group(ProcessGroupOptions options = {});
ProcessGroup init_process_group(const RankContext& context, ProcessGroupOptions options = {});
/// Of any processes of a job.
ProcessGroup init_process_group(JobGroup members, ProcessGroupOptions options = {});

struct AllReduceOptions {
  c10d::ReduceOp::RedOpType op = c10d::ReduceOp::SUM;
  bool async_op = false;
};

struct BroadcastOptions {
  int src = 0;
  bool async_op = false;
};

struct AllGatherOptions {
  bool async_op = false;
};

struct BarrierOptions {
  bool async_op = false;
};

// The collectives below throw UsageError for tensors that they cannot do right, CUDA tensors among them, before
// anything is sent. PeerLost, CollectiveMismatch and TimeoutError come from the call itself, or with `async_op` from
// wait() and from the work's future. With `async_op` the call never waits for other ranks, operations keep their order,
// and the tensor must be left alone until the work is done. Tensors that are not contiguous go through a contiguous
// copy.

/// Reduces the tensor over all ranks, in place, with the bits of the serial loop over ranks.
/// Bool tensors: SUM and MAX are "or", PRODUCT and MIN are "and".
/// Cost: nothing is copied for tensors in job memory (shared_empty).
Work all_reduce(const at::Tensor& tensor, const ProcessGroup& group, AllReduceOptions options = {},
                std::source_location where = std::source_location::current());

/// Copies the tensor of rank `options.src` to all ranks.
Work broadcast(const at::Tensor& tensor, const ProcessGroup& group, BroadcastOptions options = {},
               std::source_location where = std::source_location::current());

/// Shape: `outputs` holds one tensor per rank, each of the input's type and number of elements.
Work all_gather(const std::vector<at::Tensor>& outputs, const at::Tensor& input, const ProcessGroup& group,
                AllGatherOptions options = {}, std::source_location where = std::source_location::current());

/// Returns, or completes, when all ranks have called it.
Work barrier(const ProcessGroup& group, BarrierOptions options = {},
             std::source_location where = std::source_location::current());

}  // namespace retinue
