#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "retinue/ipc/job_group.h"
#include "torch/operation_queue.h"
#include "torch/shm_work.h"
#include "torch/tensor_buffer.h"

namespace retinue {

enum class CallMode {
  kWait,   ///< The call returns when the result is there.
  kAsync,  ///< The call returns a work and never waits for other ranks.
};

/// c10d's face of a communicator: CPU tensors between ranks of one host, through job memory.
///
/// Threads: any, as long as all ranks make the same calls in the same order.
/// Errors: as the communicator's; UsageError for tensors and operations that it does not handle.
class ShmBackend final : public c10d::Backend {
 public:
  /// Blocking: waits for the other members, at most `timeout`.
  ShmBackend(JobGroup members, std::chrono::milliseconds timeout);
  /// A world of one, which needs no job.
  explicit ShmBackend(std::chrono::milliseconds timeout);
  /// Doesn't wait: see OperationQueue::close().
  ~ShmBackend() override;

  /// The backend of a group if that is this one, else null.
  static ShmBackend* of(const c10d::ProcessGroup& group);

  /// The job's memory; null in a world of one without a job.
  const std::shared_ptr<JobMemory>& memory() const { return memory_; }

  // Without c10d's dispatcher. With kWait the result is null and errors are thrown.
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  WorkPtr all_reduce(at::TensorList tensors, c10d::ReduceOp::RedOpType op, CallMode mode, CallSite site,
                     std::chrono::milliseconds timeout = c10d::kUnsetTimeout);
  WorkPtr broadcast(at::TensorList tensors, std::int64_t root, CallMode mode, CallSite site,
                    std::chrono::milliseconds timeout = c10d::kUnsetTimeout);
  WorkPtr all_gather(at::TensorList outputs, const at::Tensor& input, CallMode mode, CallSite site,
                     std::chrono::milliseconds timeout = c10d::kUnsetTimeout);
  WorkPtr barrier(CallMode mode, CallSite site, std::chrono::milliseconds timeout = c10d::kUnsetTimeout);

  // c10d's face: always a work.
  const std::string getBackendName() const override { return "shm"; }
  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(std::vector<at::Tensor>& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;

  /// The number of collectives that this rank has called: the same on all ranks that are in step.
  std::uint64_t getSequenceNumberForGroup() override { return sequence_.load(std::memory_order_relaxed); }
  /// All members count from zero; there is nothing to agree on.
  void setSequenceNumberForGroup() override {}
  void setTimeout(std::chrono::milliseconds timeout) override;
  c10d::ErrorType getError() override;

 private:
  /// One c10d operation: what to ask of the communicator, and where the result goes if it was asked into a copy.
  struct Request {
    c10d::OpType type;
    CollectiveCall call;
    at::TensorList outputs;
    TensorBuffer input;
    TensorBuffer output;
  };

  WorkPtr gather_into(at::TensorList outputs, const at::Tensor& input, CallMode mode, CallSite site,
                      std::chrono::milliseconds timeout);
  WorkPtr submit(Request request, CallMode mode, std::chrono::milliseconds timeout);
  WorkPtr start(Request request);
  WorkPtr done_work(c10d::OpType type, at::TensorList outputs) const;

  std::shared_ptr<JobMemory> memory_;
  std::shared_ptr<OperationQueue> queue_;  ///< Null in a world of one.
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<std::uint64_t> sequence_{0};
};

}  // namespace retinue
