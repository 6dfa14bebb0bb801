#include "os/sync/life_lock.h"

#include <cerrno>
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
  // Who waits for the owner's end may have come before the owner, and left a bit in a lock that nobody holds.
  bool is_awaited = false;
  int error = 0;
  while ((error = pthread_mutex_trylock(&mutex_)) == EBUSY) {
    std::uint32_t seen = kWaiters;
    if (word().compare_exchange_strong(seen, 0, std::memory_order_acq_rel)) {
      is_awaited = true;
    } else if ((seen & ~kWaiters) != 0) {
      error = pthread_mutex_lock(&mutex_);  // It has an owner.
      break;
    }
  }
  if (error == EOWNERDEAD) {
    pthread_mutex_consistent(&mutex_);
  } else if (error != 0) {
    throw SystemError("taking a process's life lock", error);
  }
  if (is_awaited) word().fetch_or(kWaiters, std::memory_order_acq_rel);
}

bool LifeLock::take_over() {
  const int error = pthread_mutex_trylock(&mutex_);
  if (error == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
  if (error == 0) pthread_mutex_unlock(&mutex_);  // Somebody is about to take it for the first time.
  return error == EOWNERDEAD;
}

std::atomic<std::uint32_t>& LifeLock::word() const noexcept {
  // The lock word of glibc's mutex is part of its ABI; the kernel's robust list writes this very word.
  auto* lock = const_cast<int*>(&mutex_.__data.__lock);
  return *reinterpret_cast<std::atomic<std::uint32_t>*>(lock);
}

}  // namespace retinue
