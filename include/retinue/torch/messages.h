#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>
#include <utility>
#include <vector>

#include "retinue/collective/message.h"
#include "retinue/torch/process_group.h"

namespace retinue {

// Messages between two ranks, after torch.distributed. Messages of one pair of ranks arrive in the order in which they
// were begun, at the receives that accept them. Tags are not negative; `src` may be kAnySource, and a receive's tag
// kAnyTag. Messages are independent of the order of collectives: one may wait while the other continues, in other
// threads or asynchronously.
//
// Shape: both tensors have the same number of bytes; types are not compared. Tensors that are not contiguous go through
// a copy. A tensor in job memory (shared_empty) of more than 16 KiB is copied once, by the receiver.
// Threads: any, as with gloo. A waiting thread advances all of the group's messages. If none waits, a helper thread
// does; it is made when the first message has to wait without a waiter. A future's callback runs on the thread that
// finds its message done; if it blocks the helper thread, it holds up messages for which no thread waits.
// Errors: UsageError from the call, before anything is sent; PeerLost, TimeoutError, and CollectiveMismatch for
// different sizes, from the call or from the work's wait() and future. A message shorter than the receiver's tensor
// fails the receive alone, a longer one the group's messages. In groups of backend gloo either fails the receive alone;
// docs/guide/groups.md lists the other differences.

/// Sends a tensor. Blocking: until the tensor may be changed; for large data, until the receiver takes it.
void send(const at::Tensor& tensor, const ProcessGroup& group, int dst, int tag = 0,
          std::source_location where = std::source_location::current());
/// Receives into a tensor. Blocking: until the message is in the tensor. Returns the rank that sent it.
int recv(const at::Tensor& tensor, const ProcessGroup& group, int src, int tag = 0,
         std::source_location where = std::source_location::current());

/// Sends without waiting. The tensor must not be used until the work is done.
Work isend(const at::Tensor& tensor, const ProcessGroup& group, int dst, int tag = 0,
           std::source_location where = std::source_location::current());
/// Receives without waiting. Once the work is done, its sourceRank() is the rank that sent the message.
Work irecv(const at::Tensor& tensor, const ProcessGroup& group, int src, int tag = 0,
           std::source_location where = std::source_location::current());

/// One message of batch_isend_irecv(), torch.distributed's P2POp.
struct TensorP2POp {
  P2POp::Kind kind = P2POp::Kind::kSend;
  at::Tensor tensor = {};
  int peer = 0;
  int tag = 0;

  static TensorP2POp isend(at::Tensor tensor, int dst, int tag = 0) {
    return {.kind = P2POp::Kind::kSend, .tensor = std::move(tensor), .peer = dst, .tag = tag};
  }
  static TensorP2POp irecv(at::Tensor tensor, int src, int tag = 0) {
    return {.kind = P2POp::Kind::kReceive, .tensor = std::move(tensor), .peer = src, .tag = tag};
  }
};

/// Begins all of the messages or, with a UsageError, none. Returns a work for each.
std::vector<Work> batch_isend_irecv(const std::vector<TensorP2POp>& messages, const ProcessGroup& group,
                                    std::source_location where = std::source_location::current());

}  // namespace retinue
