#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "retinue/base/deadline.h"
#include "retinue/ipc/lock.h"
#include "retinue/ipc/sync_handle.h"

namespace retinue {

struct ConditionState;

/// What threads of all processes of a job wait for while they leave a lock, as Python's multiprocessing.Condition.
/// Copies are the same condition with the same lock; as an argument of spawn, or in a message, it arrives as the same.
/// It serves std::lock_guard and its like, as its lock does.
///
/// A waiter that is killed takes no wake-up along: another one gets it. wait() wakes by notify only, or when a process
/// was killed while it passed such a wake-up on.
///
/// Blocking: wait and wait_for, with a timeout or a Deadline at most that long; after it they wait for the lock without
/// an end of their own. acquire as that of a lock. All sleep.
/// Threads: all functions, from any thread of any process of the job.
/// Errors: UsageError from all functions of one that is none, and from wait and notify without the lock. SystemError
/// from a wait when the job's guardian was killed, or when 1000 threads wait already.
/// After an error: of a wait that was begun, the lock is not held.
class Condition : public detail::SyncHandle {
 public:
  using Time = std::chrono::nanoseconds;

  /// A new one with an RLock of its own, in the job of this process; without a Runtime none, until one is assigned.
  /// Errors: SharedMemoryExhausted.
  Condition();
  /// None, until one is assigned.
  explicit Condition(std::nullptr_t) noexcept : SyncHandle(SyncKind::kCondition) {}
  /// Errors: UsageError without a Runtime.
  static Condition create() { return create(JobMemory::current()); }
  static Condition create(const std::shared_ptr<JobMemory>& memory) { return Condition(RLock::create(memory)); }
  /// With a lock that others may use too.
  explicit Condition(const Lock& lock);
  explicit Condition(const RLock& lock);

  void acquire() { acquire(Time::max()); }
  bool acquire(Time timeout) { return base_lock().acquire(timeout); }
  bool acquire(Deadline deadline) { return acquire(deadline.left()); }
  void release() { base_lock().release(); }
  void lock() { acquire(); }
  bool try_lock() { return acquire(Time(0)); }
  void unlock() noexcept;
  /// As of its lock: whether the one before the present holder died with it.
  bool owner_died() const { return base_lock().owner_died(); }

  void wait() { wait(Time::max()); }
  /// Leaves the lock, all levels of it, waits for a notify, and takes it again. Whether there was one in time.
  bool wait(Time timeout);
  bool wait(Deadline deadline) { return wait(deadline.left()); }

  /// Waits until `predicate()`, which is called with the lock held, converts to true; its last value.
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

  /// Wakes the `count` that wait longest, or as many as there are.
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
  /// On the job's clock.
  Time end_after(Time timeout) const;
  Time left_until(Time end) const;

  Lock lock_{nullptr};  ///< One of these two is there.
  RLock rlock_{nullptr};
};

}  // namespace retinue
