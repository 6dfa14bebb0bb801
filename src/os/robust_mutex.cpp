#include "os/robust_mutex.h"

#include <fmt/format.h>
#include <sched.h>
#include <time.h>

#include <cerrno>

#include "os/clock.h"
#include "os/process_look.h"
#include "retinue/base/deadline.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

int lock_within(pthread_mutex_t& mutex, std::chrono::nanoseconds patience) {
#if defined(__SANITIZE_THREAD__)
  // gcc 12's ThreadSanitizer knows neither pthread_mutex_clocklock nor a dead owner in pthread_mutex_timedlock.
  const Deadline deadline = Deadline::after(patience);
  int error = 0;
  while ((error = pthread_mutex_trylock(&mutex)) == EBUSY && !deadline.passed()) sched_yield();
  return error == EBUSY ? ETIMEDOUT : error;
#else
  const timespec until = monotonic_after(patience);
  return pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &until);
#endif
}

}  // namespace

void RobustMutex::init() {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&mutex_, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

RobustMutex::Result RobustMutex::lock(std::chrono::nanoseconds patience) {
  const int error = lock_within(mutex_, patience);
  if (error == ETIMEDOUT)
    throw TimeoutError(fmt::format("a table of job memory is held since more than {} ms by thread {}{}",
                                   patience / std::chrono::milliseconds(1), mutex_.__data.__owner,
                                   standstill_clause(mutex_.__data.__owner)));
  if (error == 0) return Result::kLocked;
  if (error != EOWNERDEAD) throw SystemError("locking a table of job memory", error);
  pthread_mutex_consistent(&mutex_);
  return Result::kOwnerDied;
}

void RobustMutex::unlock() {
  pthread_mutex_unlock(&mutex_);
}

}  // namespace retinue
