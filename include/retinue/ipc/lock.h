#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "retinue/base/deadline.h"
#include "retinue/ipc/detail/sync_handle.h"

namespace retinue {

struct LockState;
class Condition;
namespace detail {
class LockedValues;
}

/// The base of Lock and RLock: a lock between all threads of all processes of a job. Copies are the same lock. As an
/// argument of spawn, or in a message, it arrives as the same lock. It meets the standard's TimedLockable, for
/// std::lock_guard, std::unique_lock and std::scoped_lock.
///
/// The thread that locked it owns it, and only that thread may release it. When that thread or its process ends, even
/// if it is killed at any instruction, the next waiter gets the lock, and owner_died() reports that to it.
///
/// Blocking: acquire, lock and try_lock_for; with a timeout or a Deadline at most that long. They spin for some
/// microseconds while the holder runs on another CPU, and then sleep.
/// Threads: all functions, from any thread of any process of the job.
/// Errors: UsageError from all functions of an empty handle. SystemError from a wait when the job's guardian was
/// killed.
class BasicLock : public detail::SyncHandle {
 public:
  using Time = std::chrono::nanoseconds;

  void acquire() { acquire(Time::max()); }
  /// Returns false if the lock wasn't free in time; a zero timeout only tries.
  /// Errors: UsageError for a wait without a time limit for a Lock that this thread already holds.
  bool acquire(Time timeout);
  bool acquire(Deadline deadline) { return acquire(deadline.left()); }
  /// Errors: UsageError, which names the holder, if this thread doesn't hold the lock.
  void release();

  void lock() { acquire(); }
  bool try_lock() { return acquire(Time(0)); }
  template <class Rep, class Period>
  bool try_lock_for(const std::chrono::duration<Rep, Period>& timeout) {
    return acquire(std::chrono::ceil<Time>(timeout));
  }
  template <class Clock, class Duration>
  bool try_lock_until(const std::chrono::time_point<Clock, Duration>& when) {
    return acquire(std::chrono::ceil<Time>(when - Clock::now()));
  }
  /// As release(), but does nothing if this thread doesn't hold the lock: guards call it in destructors, also in a fork
  /// of the holder, and after a wait on a Condition that threw.
  void unlock() noexcept;

  /// For the holder: returns whether the previous holder died with the lock, perhaps in the middle of a change to the
  /// data that it guards. Stays true until the holder releases the lock.
  bool owner_died() const;
  /// Returns whether some thread holds it, at the moment of the call.
  bool locked() const;
  /// Returns whether the calling thread holds it.
  bool is_held_here() const;

 protected:
  explicit BasicLock(SyncKind kind) noexcept : SyncHandle(kind) {}

 private:
  friend class Condition;

  LockState& state() const;
  bool wait(LockState& state, Time timeout);
  void note_taken(LockState& state, bool from_the_dead);
  void release_mutex(LockState& state);
  /// For Condition: releases all levels of an RLock; acquire_levels() locks it as often again.
  std::uint32_t release_all_levels();
  void acquire_levels(std::uint32_t depth);
};

/// A lock that a thread can lock only once, as Python's multiprocessing.Lock. Unlike there, only its holder can release
/// it; to lock in one thread and release in another, use a Semaphore.
class Lock : public BasicLock {
 public:
  /// Makes a new lock in the job of this process. Without a Runtime it makes an empty handle.
  /// Errors: SharedMemoryExhausted.
  Lock();
  /// Makes an empty handle; assign a lock later.
  explicit Lock(std::nullptr_t) noexcept : BasicLock(SyncKind::kLock) {}
  /// Errors: UsageError without a Runtime.
  static Lock create() { return create(JobMemory::current()); }
  static Lock create(const std::shared_ptr<JobMemory>& memory);
};

/// A lock that its holder can lock again, and must release as often, as Python's multiprocessing.RLock.
class RLock : public BasicLock {
 public:
  /// Makes a new lock in the job of this process. Without a Runtime it makes an empty handle.
  /// Errors: SharedMemoryExhausted.
  RLock();
  /// Makes an empty handle; assign a lock later.
  explicit RLock(std::nullptr_t) noexcept : BasicLock(SyncKind::kRLock) {}
  /// Errors: UsageError without a Runtime.
  static RLock create() { return create(JobMemory::current()); }
  static RLock create(const std::shared_ptr<JobMemory>& memory);

 private:
  friend class detail::LockedValues;

  /// Makes a lock at the start of a block that contains more.
  static RLock lay_out(const SharedBlock& block);
};

}  // namespace retinue
