#include "os/life_lock.h"

#include <cstring>

#include "retinue/base/error.h"

namespace retinue {

void LifeLock::reset() {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  std::memset(static_cast<void*>(&mutex_), 0, sizeof mutex_);
  pthread_mutex_init(&mutex_, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

void LifeLock::take() {
  const int error = pthread_mutex_lock(&mutex_);
  if (error == EOWNERDEAD) {
    pthread_mutex_consistent(&mutex_);
  } else if (error != 0) {
    throw SystemError("taking a process's life lock", error);
  }
}

std::atomic<std::uint32_t>& LifeLock::word() const noexcept {
  // The lock word of glibc's mutex is part of its ABI; the kernel's robust list writes this very word.
  auto* lock = const_cast<int*>(&mutex_.__data.__lock);
  return *reinterpret_cast<std::atomic<std::uint32_t>*>(lock);
}

}  // namespace retinue
