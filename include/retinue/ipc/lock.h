#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "retinue/base/deadline.h"
#include "retinue/ipc/sync_handle.h"

namespace retinue {

struct LockState;
class Condition;
namespace detail {
class LockedValues;
}

/// What Lock and RLock have in common: a lock between all threads of all processes of a job. Copies are the same lock;
/// as an argument of spawn, or in a message, it arrives as the same lock. It is std's TimedLockable, for
/// std::lock_guard, std::unique_lock and std::scoped_lock.
///
/// It belongs to the thread that took it, and only that may release it. When that thread or its process ends, killed at
/// any instruction, the lock goes to the next one, whom owner_died() tells of it.
///
/// Blocking: acquire, lock and try_lock_for; with a timeout or a Deadline at most that long. They spin for some
/// microseconds while the holder runs on another CPU, and then sleep.
/// Threads: all functions, from any thread of any process of the job.
/// Errors: UsageError from all functions of one that is none. SystemError from a wait when the job's guardian was
/// killed.
class BasicLock : public detail::SyncHandle {
 public:
  using Time = std::chrono::nanoseconds;

  void acquire() { acquire(Time::max()); }
  /// False when it was not free in time; a zero timeout only tries.
  /// Errors: UsageError for a wait without end for a Lock that this thread holds itself.
  bool acquire(Time timeout);
  bool acquire(Deadline deadline) { return acquire(deadline.left()); }
  /// Errors: UsageError, which names the holder, if this thread does not hold it.
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
  /// As release(), but does nothing where this thread does not hold it: guards call it in destructors, also in those of
  /// a fork of the holder, and after a wait on a Condition that threw.
  void unlock() noexcept;

  /// For the holder: whether the one before it died with the lock, and left what it guards maybe half changed. True
  /// until it releases the lock.
  bool owner_died() const;
  /// Whether some thread holds it: true in the moment of looking.
  bool locked() const;
  /// Whether the calling thread holds it.
  bool is_held_here() const;

 protected:
  explicit BasicLock(SyncKind kind) noexcept : SyncHandle(kind) {}

 private:
  friend class Condition;

  LockState& state() const;
  bool wait(LockState& state, Time timeout);
  void note_taken(LockState& state, bool from_the_dead);
  void give_back(LockState& state);
  /// For Condition: gives up all levels of an RLock, and takes as many again.
  std::uint32_t give_up();
  void take_again(std::uint32_t depth);
};

/// A lock that a thread can take once, as Python's multiprocessing.Lock, but that only its holder can release: what one
/// thread takes and another gives back is a Semaphore.
class Lock : public BasicLock {
 public:
  /// A new lock in the job of this process; without a Runtime none, until one is assigned.
  /// Errors: SharedMemoryExhausted.
  Lock();
  /// No lock, until one is assigned.
  explicit Lock(std::nullptr_t) noexcept : BasicLock(SyncKind::kLock) {}
  /// Errors: UsageError without a Runtime.
  static Lock create() { return create(JobMemory::current()); }
  static Lock create(const std::shared_ptr<JobMemory>& memory);
};

/// A lock that its holder can take again, and must release as often, as Python's multiprocessing.RLock.
class RLock : public BasicLock {
 public:
  /// A new lock in the job of this process; without a Runtime none, until one is assigned.
  /// Errors: SharedMemoryExhausted.
  RLock();
  /// No lock, until one is assigned.
  explicit RLock(std::nullptr_t) noexcept : BasicLock(SyncKind::kRLock) {}
  /// Errors: UsageError without a Runtime.
  static RLock create() { return create(JobMemory::current()); }
  static RLock create(const std::shared_ptr<JobMemory>& memory);

 private:
  friend class detail::LockedValues;

  /// Makes one at the start of a block that has more in it.
  static RLock lay_out(const SharedBlock& block);
};

}  // namespace retinue
