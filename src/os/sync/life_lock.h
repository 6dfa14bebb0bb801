#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "os/sync/futex.h"

namespace retinue {

/// A robust lock in shared memory that its owner takes once and never releases: when the owner's thread ends, however
/// it ends, the kernel writes OWNER_DIED into the word and wakes one waiter, at once and whatever the process's size (a
/// pidfd becomes readable only after its memory is torn down).
///
/// Built on glibc's robust mutex, because a thread has only one robust list and glibc owns it.
class LifeLock {
 public:
  /// Prepares the lock for a new owner. Nobody may hold or watch it.
  void reset();
  /// Taken by the thread whose end shall be noticed.
  void take();
  /// The same where its owner has ended. False: it has one that lives.
  bool take_over();

  bool owner_died() const noexcept { return (word().load(std::memory_order_acquire) & kOwnerDied) != 0; }

  /// The futex word. A waiter sets kWaiters in it before it parks; the kernel wakes one waiter only, who wakes the
  /// others.
  std::atomic<std::uint32_t>& word() const noexcept;
  /// Of one that has an owner, or had: sets kWaiters. What to sleep on until the owner's death.
  FutexWait watch() const noexcept {
    return {&word(), word().fetch_or(kWaiters, std::memory_order_acq_rel) | kWaiters};
  }

  static constexpr std::uint32_t kOwnerDied = 0x40000000u;
  static constexpr std::uint32_t kWaiters = 0x80000000u;

 private:
  pthread_mutex_t mutex_;
};

}  // namespace retinue
