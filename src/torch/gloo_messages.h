#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "retinue/torch/messages.h"
#include "torch/gloo_peers.h"
#include "torch/tensor_buffer.h"

namespace retinue {

/// A message between two ranks by gloo, which ends a process that gets more bytes than it waits for, and leaves the end
/// of a buffer as it was for less. So two messages of gloo's make one: how many bytes there are, and then these, under
/// a tag that says the same. Receives of any source take the bytes when they are waited for, all others when they come.
class GlooMessage final : public c10d::Work {
 public:
  /// Begins it. `buffer`: the message's tensor, as checked_buffer() gives it.
  GlooMessage(c10::intrusive_ptr<c10d::Backend> gloo, std::shared_ptr<const GlooPeers> peers,
              const TensorP2POp& message, TensorBuffer buffer, std::chrono::milliseconds timeout);
  /// Errors: UsageError for a message that can't be.
  static TensorBuffer checked_buffer(const TensorP2POp& message, int rank, int size);

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  bool isCompleted() override;
  bool isSuccess() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return {message_.tensor}; }

 private:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  bool sends() const { return message_.kind == P2POp::Kind::kSend; }
  const char* name() const { return sends() ? "send" : "recv"; }
  WorkPtr begin(const at::Tensor& bytes, int peer, int tag) const;
  WorkPtr begin_data(int peer) const;
  void finish(std::chrono::milliseconds timeout);

  const c10::intrusive_ptr<c10d::Backend> gloo_;
  const std::shared_ptr<const GlooPeers> peers_;
  const TensorP2POp message_;
  const std::chrono::milliseconds timeout_;
  const TensorBuffer buffer_;
  const std::shared_ptr<std::int64_t> bytes_;  ///< That are sent: the first message.
  WorkPtr announced_;
  WorkPtr data_;

  mutable std::mutex waiting_;  ///< Guards what follows, and the works.
  bool ended_ = false;
  std::exception_ptr error_;
};

}  // namespace retinue
