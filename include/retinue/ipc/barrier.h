#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "retinue/base/deadline.h"
#include "retinue/ipc/detail/sync_handle.h"

namespace retinue {

struct BarrierState;

/// A barrier, as Python's multiprocessing.Barrier: it releases its waiters each time that a fixed number of them, its
/// parties, have come. Copies are the same barrier. As an argument of spawn, or in a message, it arrives as the same
/// barrier.
///
/// It breaks when a wait times out, when an action throws, on abort(), and when a waiter is killed; the others learn of
/// that within some 20 ms. If a party is killed before it comes, only a timeout reveals that.
///
/// Blocking: wait; with a timeout or a Deadline at most that long. It sleeps.
/// Threads: all functions, from any thread of any process of the job.
/// Errors: UsageError from all functions of a default-constructed barrier. BrokenBarrierError, which gives the reason,
/// from wait. SystemError from a wait when the job's guardian was killed. After an error: of wait, the barrier is
/// broken until reset().
class Barrier : public detail::SyncHandle {
 public:
  using Time = std::chrono::nanoseconds;
  using Action = std::function<void()>;
  static constexpr int kMostParties = 900;

  /// Makes an empty handle; assign a barrier later.
  Barrier() : SyncHandle(SyncKind::kBarrier) {}
  /// Makes a barrier in the job of this process, or in another job.
  /// Errors: UsageError if `parties` is less than 1 or more than kMostParties; SharedMemoryExhausted.
  explicit Barrier(int parties) : Barrier(JobMemory::current(), parties) {}
  Barrier(const std::shared_ptr<JobMemory>& memory, int parties);

  /// Returns how many parties had come before: each number from 0 to parties - 1 goes to one of them.
  int wait() { return wait(Time::max()); }
  int wait(Time timeout) { return wait(nullptr, timeout); }
  int wait(Deadline deadline) { return wait(deadline.left()); }
  /// The last party to come calls its `action` before any is released. All parties should pass the same action, because
  /// nobody knows who is last. Its exception is thrown to that party; the others get BrokenBarrierError. Once all have
  /// come, no wait times out.
  int wait(const Action& action, Time timeout = Time::max());
  int wait(const Action& action, Deadline deadline) { return wait(action, deadline.left()); }

  /// Repairs and empties the barrier. Waiters get BrokenBarrierError.
  void reset();
  /// Breaks the barrier, for present and future waiters.
  void abort();

  int parties() const;
  /// Returns the number at the moment of the call, or 0 while the barrier is broken.
  int n_waiting() const;
  bool broken() const;

 private:
  class Impl;
};

}  // namespace retinue
