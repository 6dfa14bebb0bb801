#include "os/sync/robust_mutex.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sched.h>
#include <time.h>

#include <cerrno>

#include "os/machine/valgrind.h"
#include "os/process/process_look.h"
#include "os/sync/clock.h"
#include "os/sync/cpu_relax.h"
#include "retinue/base/deadline.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

/// Whether pthread_mutex_clocklock() is of no use. gcc 12's ThreadSanitizer knows neither that nor a dead owner in
/// pthread_mutex_timedlock; valgrind refuses its futexes in job memory, which below it may only be written.
bool lacks_timed_locks() noexcept {
#if defined(__SANITIZE_THREAD__)
  return true;
#else
  return runs_on_valgrind();
#endif
}

int lock_within(pthread_mutex_t& mutex, std::chrono::nanoseconds patience) {
  if (!lacks_timed_locks()) {
    const timespec until = monotonic_after(patience);
    return pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &until);
  }
  const Deadline deadline = Deadline::after(patience);
  int error = 0;
  while ((error = pthread_mutex_trylock(&mutex)) == EBUSY && !deadline.passed()) sched_yield();
  return error == EBUSY ? ETIMEDOUT : error;
}

}  // namespace

void RobustMutex::init(int type) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_settype(&attributes, type);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&mutex_, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

void RobustMutex::init() {
  init(PTHREAD_MUTEX_NORMAL);
}

void RobustMutex::init_checked() {
  init(PTHREAD_MUTEX_ERRORCHECK);
}

RobustMutex::Result RobustMutex::lock(std::chrono::nanoseconds patience, const std::atomic<std::uint64_t>* progress) {
  const auto reached = [&] { return progress == nullptr ? 0 : progress->load(std::memory_order_relaxed); };
  spin_while_held(kPausesOfASleep);
  std::uint64_t before = 0;
  do {
    before = reached();
    const Result result = try_lock(patience);
    if (result == Result::kLocked || result == Result::kOwnerDied) return result;
  } while (reached() != before);
  const auto holder = static_cast<pid_t>(this->holder());
  throw TimeoutError(fmt::format("a table in job memory has been locked for more than {} ms by thread {}{}",
                                 patience / std::chrono::milliseconds(1), holder, standstill_clause(holder)));
}

RobustMutex::Result RobustMutex::try_lock(std::chrono::nanoseconds patience) {
  int error = pthread_mutex_trylock(&mutex_);
  // The clock, by which the wait ends, is read where there is one.
  if (error == EBUSY && patience > std::chrono::nanoseconds(0)) error = lock_within(mutex_, patience);
  if (error == 0) return Result::kLocked;
  if (error == ETIMEDOUT || error == EBUSY) return Result::kBusy;
  if (error == EDEADLK) return Result::kHeldByCaller;
  if (error != EOWNERDEAD) throw SystemError("locking a mutex in job memory", error);
  pthread_mutex_consistent(&mutex_);
  return Result::kOwnerDied;
}

void RobustMutex::spin_while_held(int pauses) const noexcept {
  for (int i = 0; i < pauses && holder() != 0; ++i) cpu_relax();
}

std::uint32_t RobustMutex::holder() const noexcept {
  const std::uint32_t word = __atomic_load_n(&mutex_.__data.__lock, __ATOMIC_RELAXED);
  return word & FUTEX_TID_MASK;
}

bool RobustMutex::is_orphaned() const noexcept {
  return (__atomic_load_n(&mutex_.__data.__lock, __ATOMIC_ACQUIRE) & FUTEX_OWNER_DIED) != 0;
}

void RobustMutex::unlock() {
  pthread_mutex_unlock(&mutex_);
}

}  // namespace retinue
