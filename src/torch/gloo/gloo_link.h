#pragma once

#include <csignal>
#include <exception>
#include <mutex>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "torch/gloo/gloo_peers.h"

namespace retinue {

/// As long as it lives, a closed connection is an error of this thread's writes, not a signal that ends the process; so
/// it is in threads that are made meanwhile, for good. gloo leaves that to its caller.
class WithoutSigpipe {
 public:
  WithoutSigpipe();
  ~WithoutSigpipe();
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t before_;
};

/// The connections of a group by gloo, for its collectives and its messages. Threads: any.
class GlooLink {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  GlooLink(c10::intrusive_ptr<c10d::Backend> gloo, GlooPeers peers)
      : gloo_(std::move(gloo)), peers_(std::move(peers)) {}

  const GlooPeers& peers() const { return peers_; }

  /// For who is to have the connections for longer than this object.
  c10::intrusive_ptr<c10d::Backend> gloo() const { return gloo_; }

  /// Begins what `start(gloo)` does: one at a time, since gloo's face counts without a lock. Errors: Closed.
  template <typename Start>
  WorkPtr begin(Start start) {
    const WithoutSigpipe without;
    const std::lock_guard lock(mutex_);
    check_open();
    return start(*gloo_);
  }
  /// The same with connections that the caller has.
  template <typename Start>
  WorkPtr begin(c10d::Backend& gloo, Start start) {
    const WithoutSigpipe without;
    const std::lock_guard lock(mutex_);
    return start(gloo);
  }

  /// The others' waits for this rank end. What is under way keeps its connections until it is dropped.
  void close();
  /// Keeps the connections to the process's end: in a fork, since they are its parent's, and where to end them would
  /// wait for one of gloo's threads.
  void leak();

  void note_message_error(const std::exception_ptr& error);
  std::exception_ptr first_message_error() const;

 private:
  void check_open() const;

  mutable std::mutex mutex_;  ///< Guards what follows.
  c10::intrusive_ptr<c10d::Backend> gloo_;
  std::exception_ptr first_message_error_;

  const GlooPeers peers_;
};

}  // namespace retinue
