#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "retinue/collective/options.h"
#include "retinue/store/store.h"
#include "retinue/torch/messages.h"
#include "torch/backend/operation_queue.h"
#include "torch/backend/shm_work.h"
#include "torch/backend/tensor_buffer.h"

namespace retinue {

/// How a caller asks for an operation.
struct CallMode {
  bool async_op = false;  ///< The call returns a work and never waits for other ranks; otherwise null, when it is done.
  CallSite site{"", 0};
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  bool always_gives_work = false;  ///< A call that isn't asynchronous returns a work, too, which is done.
};

/// c10d's face of collectives of bytes: CPU tensors between ranks, however these are connected.
///
/// Threads: any, as long as all ranks make the same calls in the same order.
/// Errors: as Communicator's; UsageError for tensors and operations that it does not handle.
class TensorBackend : public c10d::Backend {
 public:
  /// How ranks wait for each other.
  struct Waits {
    std::chrono::milliseconds timeout;
    Waiting waiting = Waiting::kBalanced;
    std::optional<std::chrono::nanoseconds> late_after = std::nullopt;
  };

  /// The backend of a group if that is one of ours, else null.
  static TensorBackend* of(const c10d::ProcessGroup& group);
  /// The same, but null where the group has another for the device of the tensor.
  static TensorBackend* of(c10d::ProcessGroup& group, const at::Tensor& tensor);

  Waits waits() const;

  /// "shm" or "gloo", or as set_name() said before the backend was used: in the profiler's events, and in errors.
  const std::string getBackendName() const override { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }

  /// Where the ranks of a group that has NCCL for CUDA tensors meet for that, and those of its parts; else null.
  const std::shared_ptr<Store>& nccl_store() const { return nccl_store_; }
  void keep_nccl_store(std::shared_ptr<Store> store) { nccl_store_ = std::move(store); }

  // Without c10d's dispatcher.
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  WorkPtr all_reduce(at::TensorList tensors, const c10d::ReduceOp& op, const CallMode& mode);
  WorkPtr all_reduce_coalesced(at::TensorList tensors, const c10d::ReduceOp& op, const CallMode& mode);
  WorkPtr all_reduce_sparse(const at::Tensor& tensor, const c10d::ReduceOp& op, const CallMode& mode);
  WorkPtr reduce(at::TensorList tensors, const c10d::ReduceOp& op, std::int64_t root, const CallMode& mode);
  WorkPtr broadcast(at::TensorList tensors, std::int64_t root, const CallMode& mode);
  WorkPtr all_gather(at::TensorList outputs, const at::Tensor& input, const CallMode& mode);
  /// `outputs`: those of rank 0, in the order of its inputs, then those of rank 1, and so on.
  WorkPtr all_gather_coalesced(at::TensorList outputs, at::TensorList inputs, const CallMode& mode);
  WorkPtr all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input, const CallMode& mode);
  /// `outputs` counts at the root alone.
  WorkPtr gather(at::TensorList outputs, const at::Tensor& input, std::int64_t root, const CallMode& mode);
  /// `inputs` counts at the root alone.
  WorkPtr scatter(const at::Tensor& output, at::TensorList inputs, std::int64_t root, const CallMode& mode);
  WorkPtr reduce_scatter(const at::Tensor& output, at::TensorList inputs, const c10d::ReduceOp& op,
                         const CallMode& mode);
  WorkPtr reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op,
                                const CallMode& mode);
  /// `inputs`: those for rank 0, in the order of its outputs, then those for rank 1, and so on.
  WorkPtr reduce_scatter_coalesced(at::TensorList outputs, at::TensorList inputs, const c10d::ReduceOp& op,
                                   const CallMode& mode);
  WorkPtr all_to_all(at::TensorList outputs, at::TensorList inputs, const CallMode& mode);
  /// Splits are rows of the first dimension for each rank; an empty list: all of one size.
  WorkPtr all_to_all_single(const at::Tensor& output, const at::Tensor& input, at::IntArrayRef output_splits,
                            at::IntArrayRef input_splits, const CallMode& mode);
  WorkPtr barrier(const CallMode& mode);

  /// Begins all of them, or, with a UsageError, none. Gives a work for each.
  virtual std::vector<WorkPtr> start(std::span<const TensorP2POp> messages, const CallMode& mode) = 0;
  /// Returns the sender's rank for a receive.
  virtual int run(const TensorP2POp& message, const CallMode& mode) = 0;
  /// Blocking: runs `body` on the communicator of collectives, after those that were begun before. False, and nothing
  /// done, in a world of one. Errors: the body's.
  bool use_communicator(const std::function<void(Communicator&)>& body);
  void monitored_barrier(const MonitoredBarrierOptions& options, const CallSite& site);

  // c10d's face: always a work.
  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(std::vector<at::Tensor>& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                   const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;
  WorkPtr send(std::vector<at::Tensor>& tensors, int dst, int tag) override;
  WorkPtr recv(std::vector<at::Tensor>& tensors, int src, int tag) override;
  WorkPtr recvAnysource(std::vector<at::Tensor>& tensors, int tag) override;
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  /// Blocking: until `ranks` have met at `store`. Null on a rank that isn't one of them. Errors:
  /// init_process_group()'s.
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options) override;

  /// The number of collectives that this rank has called: the same on all ranks that are in step.
  std::uint64_t getSequenceNumberForGroup() override { return sequence_.load(std::memory_order_relaxed); }
  /// All members count from zero; there is nothing to agree on.
  void setSequenceNumberForGroup() override {}
  void setTimeout(std::chrono::milliseconds timeout) override;
  c10d::ErrorType getError() override;
  /// Leaves the group. Doesn't wait: see OperationQueue::close(). Threads: while no other thread is in a call.
  void shutdown() override;
  void abort() override { shutdown(); }

 protected:
  /// `queue`: null in a world of one.
  TensorBackend(const char* name, int rank, int size, const Waits& waits, std::shared_ptr<OperationQueue> queue);

  std::chrono::milliseconds timeout() const { return timeout_.load(std::memory_order_relaxed); }
  std::chrono::milliseconds timeout_of(const CallMode& mode) const;
  /// Errors: Closed after shutdown().
  void check_open() const;
  /// Of collectives, the error that ended the group; null while it goes on.
  std::exception_ptr first_error() const;
  /// In a fork, which has none of the queue's threads.
  void leak_queue() { static_cast<void>(new std::shared_ptr<OperationQueue>(std::move(queue_))); }

 private:
  /// One c10d operation: what to ask of the communicator, the memory that this takes, and where the result goes if it
  /// was asked into a copy.
  struct Request {
    c10d::OpType type;
    CollectiveCall call;
    at::TensorList tensors = {};  ///< Whose contents the operation changes.
    at::TensorList given = {};    ///< What it takes them from, for the profiler; empty: themselves.
    TensorBuffer input = {};
    TensorParts inputs = {};
    TensorBuffer output = {};  ///< Of all `tensors` as one, or
    TensorParts outputs = {};  ///< of each.
    std::vector<ConstBytes> input_rows = {};
    std::vector<Bytes> output_rows = {};
    std::function<void(Communicator&)> body = nullptr;  ///< In place of `call`, but for its name.
  };

  /// Of messages, the first error that ended the group.
  virtual std::exception_ptr first_message_error() const = 0;
  /// Once, after which no more messages are begun.
  virtual void close_messages() = 0;

  bool is_root(std::string_view call, std::int64_t root) const;
  WorkPtr submit(Request request, const CallMode& mode);
  WorkPtr start(Request request, const QueuedCall& call, std::uint64_t sequence, const std::string& title);
  WorkPtr done_work(c10d::OpType type, at::TensorList outputs) const;
  /// Of tensors that are one run of memory on each side.
  WorkPtr gather_run(const char* call, c10d::OpType type, at::TensorList outputs, at::TensorList inputs,
                     const CallMode& mode);
  WorkPtr reduce_scatter_run(const char* call, c10d::OpType type, at::TensorList outputs, at::TensorList inputs,
                             const c10d::ReduceOp& op, const CallMode& mode);

  std::string name_;
  std::shared_ptr<OperationQueue> queue_;
  std::atomic<std::chrono::milliseconds> timeout_;
  const Waits waits_;  ///< Of which the timeout may be another by now.
  std::atomic<bool> closed_{false};
  std::atomic<std::uint64_t> sequence_{0};
  std::shared_ptr<Store> nccl_store_;
};

}  // namespace retinue
