#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "retinue/base/deadline.h"
#include "retinue/ipc/sync_handle.h"

namespace retinue {

struct BarrierState;

/// Lets go of those that wait when a number of them, its parties, have come, again and again, as Python's
/// multiprocessing.Barrier. Copies are the same barrier; as an argument of spawn, or in a message, it arrives as the
/// same barrier.
///
/// It breaks when a wait times out, when an action throws, on abort(), and when one that waits is killed: the others
/// learn of it within some 20 ms. Of a killed party that had not come yet a timeout tells.
///
/// Blocking: wait; with a timeout or a Deadline at most that long. It sleeps.
/// Threads: all functions, from any thread of any process of the job.
/// Errors: UsageError from all functions of a default-made one. BrokenBarrierError, which says why, from wait.
/// SystemError from a wait when the job's guardian was killed. After an error: of wait, it is broken, until reset().
class Barrier : public detail::SyncHandle {
 public:
  using Time = std::chrono::nanoseconds;
  using Action = std::function<void()>;
  static constexpr int kMostParties = 900;

  /// None, until one is assigned.
  Barrier() : SyncHandle(SyncKind::kBarrier) {}
  /// In the job of this process, or in another's.
  /// Errors: UsageError for parties less than 1 or more than kMostParties; SharedMemoryExhausted.
  explicit Barrier(int parties) : Barrier(JobMemory::current(), parties) {}
  Barrier(const std::shared_ptr<JobMemory>& memory, int parties);

  /// Returns how many had come before: each of 0 to parties - 1 to one of them.
  int wait() { return wait(Time::max()); }
  int wait(Time timeout) { return wait(nullptr, timeout); }
  int wait(Deadline deadline) { return wait(deadline.left()); }
  /// The last one to come calls its `action` before any is let go. All give the same: nobody knows who is last. What it
  /// throws, it throws there; the others have BrokenBarrierError. Once all have come, nobody times out.
  int wait(const Action& action, Time timeout = Time::max());
  int wait(const Action& action, Deadline deadline) { return wait(action, deadline.left()); }

  /// Makes it whole and empty. Those that wait have BrokenBarrierError.
  void reset();
  /// Breaks it, for those that wait and for those that come.
  void abort();

  int parties() const;
  /// True in the moment of looking; 0 while it is broken.
  int n_waiting() const;
  bool broken() const;

 private:
  class Impl;
};

}  // namespace retinue
