#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "retinue/ipc/job_group.h"
#include "torch/backend/message_queue.h"
#include "torch/backend/tensor_backend.h"

namespace retinue {

/// CPU tensors between ranks of one host, through job memory.
class ShmBackend final : public TensorBackend {
 public:
  /// Blocking: waits for the other members, at most `waits.timeout`.
  ShmBackend(JobGroup members, const Waits& waits, const CallSite& site);
  /// A world of one, which needs no job.
  explicit ShmBackend(std::chrono::milliseconds timeout);
  ~ShmBackend() override;

  /// The backend of a group if that is this one, else null.
  static ShmBackend* of(const c10d::ProcessGroup& group);

  /// Without memory, and with no slots, in a world of one without a job.
  const JobGroup& members() const { return members_; }
  const std::shared_ptr<JobMemory>& memory() const { return members_.memory; }

  std::vector<WorkPtr> start(std::span<const TensorP2POp> messages, const CallMode& mode) override;
  int run(const TensorP2POp& message, const CallMode& mode) override;

 private:
  std::exception_ptr first_message_error() const override;
  void close_messages() override;

  JobGroup members_;
  /// Null in a world of one. On a communicator of its own: no message waits until collectives are done, nor they for
  /// it.
  std::shared_ptr<MessageQueue> messages_;
};

}  // namespace retinue
