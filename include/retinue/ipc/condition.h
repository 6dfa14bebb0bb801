#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "retinue/base/deadline.h"
#include "retinue/ipc/detail/sync_handle.h"
#include "retinue/ipc/lock.h"

namespace retinue {

struct ConditionState;

/// A condition variable for threads of all processes of a job, as Python's multiprocessing.Condition. A waiting thread
/// releases the condition's lock meanwhile. Copies are the same condition with the same lock. As an argument of spawn,
/// or in a message, it arrives as the same condition. It works with std::lock_guard and its like, as its lock does.
///
/// A wake-up for a waiter that is killed isn't lost: another waiter gets it. wait() wakes by notify only, or when a
/// process was killed while it passed on such a wake-up.
///
/// Blocking: wait and wait_for, with a timeout or a Deadline at most that long; afterwards they wait for the lock
/// without a time limit. acquire as for a lock. All sleep.
/// Threads: all functions, from any thread of any process of the job.
/// Errors: UsageError from all functions of an empty handle, and from wait and notify without the lock.
/// SystemError from a wait when the job's guardian was killed, or when 1000 threads are already waiting.
/// After an error: of a wait that was begun, the lock is not held, unless a signal ended it (EINTR).
class Condition : public detail::SyncHandle {
 public:
  using Time = std::chrono::nanoseconds;

  /// Makes a condition with an RLock of its own in the job of this process. Without a Runtime it makes an empty
  /// handle; assign a condition later.
  /// Errors: SharedMemoryExhausted.
  Condition();
  /// Makes an empty handle; assign a condition later.
  explicit Condition(std::nullptr_t) noexcept : SyncHandle(SyncKind::kCondition) {}
  /// Errors: UsageError without a Runtime.
  static Condition create() { return create(JobMemory::current()); }
  static Condition create(const std::shared_ptr<JobMemory>& memory) { return Condition(RLock::create(memory)); }
  /// Makes a condition with a lock that others may use, too.
  explicit Condition(const Lock& lock);
  explicit Condition(const RLock& lock);

  void acquire() { acquire(Time::max()); }
  bool acquire(Time timeout) { return base_lock().acquire(timeout); }
  bool acquire(Deadline deadline) { return acquire(deadline.left()); }
  void release() { base_lock().release(); }
  void lock() { acquire(); }
  bool try_lock() { return acquire(Time(0)); }
  void unlock() noexcept;
  /// As for its lock: returns whether the previous holder died while it held the lock.
  bool owner_died() const { return base_lock().owner_died(); }

  void wait() { wait(Time::max()); }
  /// Releases all levels of the lock, waits for a notify, and locks it again. Returns whether a notify came in time.
  bool wait(Time timeout);
  bool wait(Deadline deadline) { return wait(deadline.left()); }

  /// Waits until `predicate()`, which is called with the lock held, converts to true. Returns its last value.
  template <class Predicate>
  auto wait_for(Predicate predicate, Time timeout = Time::max()) {
    const Time end = end_after(timeout);
    auto result = predicate();
    for (Time left = timeout; !result && left > Time(0); left = left_until(end)) {
      wait(left);
      result = predicate();
    }
    return result;
  }
  template <class Predicate>
  auto wait_for(Predicate predicate, Deadline deadline) {
    return wait_for(std::move(predicate), deadline.left());
  }

  /// Wakes the `count` longest waiters, or all if there are fewer.
  void notify(std::uint32_t count = 1);
  void notify_all() { notify(0xffffffffu); }

  template <class Archive>
  void save(Archive& archive) const {
    SyncHandle::save(archive);
    archive(lock_, rlock_);
  }
  template <class Archive>
  void load(Archive& archive) {
    SyncHandle::load(archive);
    archive(lock_, rlock_);
  }

 private:
  BasicLock& base_lock() { return lock_ ? static_cast<BasicLock&>(lock_) : rlock_; }
  const BasicLock& base_lock() const { return lock_ ? static_cast<const BasicLock&>(lock_) : rlock_; }
  void make_state();
  ConditionState& held_state(const char* operation);
  /// Uses the job's clock.
  Time end_after(Time timeout) const;
  Time left_until(Time end) const;

  Lock lock_{nullptr};  ///< One of these two is there.
  RLock rlock_{nullptr};
};

}  // namespace retinue
