#include "os/robust_mutex.h"

#include <cerrno>

#include "retinue/base/error.h"

namespace retinue {

void RobustMutex::init() {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&mutex_, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

RobustMutex::Result RobustMutex::lock() {
  const int error = pthread_mutex_lock(&mutex_);
  if (error == 0) return Result::kLocked;
  if (error != EOWNERDEAD) throw SystemError("locking a table of job memory", error);
  pthread_mutex_consistent(&mutex_);
  return Result::kOwnerDied;
}

void RobustMutex::unlock() {
  pthread_mutex_unlock(&mutex_);
}

}  // namespace retinue
