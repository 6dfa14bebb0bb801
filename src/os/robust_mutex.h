#pragma once

#include <pthread.h>

#include <chrono>

namespace retinue {

/// A lock in shared memory that survives its holder's death: the next one learns of it and repairs what it guards.
class RobustMutex {
 public:
  void init();

  enum class Result { kLocked, kOwnerDied };
  /// kOwnerDied: locked too, but the guarded data may be half changed; repair it before going on.
  /// Errors: TimeoutError, which names the holder, when it is not free after `patience`.
  [[nodiscard]] Result lock(std::chrono::nanoseconds patience);
  void unlock();

 private:
  pthread_mutex_t mutex_;
};

/// Holds a RobustMutex for a scope; `owner_died()` says that the data must be repaired first.
class RobustLock {
 public:
  RobustLock(RobustMutex& mutex, std::chrono::nanoseconds patience)
      : mutex_(mutex), owner_died_(mutex.lock(patience) == RobustMutex::Result::kOwnerDied) {}
  ~RobustLock() { mutex_.unlock(); }
  RobustLock(const RobustLock&) = delete;
  RobustLock& operator=(const RobustLock&) = delete;

  bool owner_died() const noexcept { return owner_died_; }

 private:
  RobustMutex& mutex_;
  bool owner_died_;
};

}  // namespace retinue
