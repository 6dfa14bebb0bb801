#pragma once

#include <pthread.h>

namespace retinue {

/// A lock in shared memory that survives its holder's death: the next one learns of it and repairs what it guards.
class RobustMutex {
 public:
  void init();

  enum class Result { kLocked, kOwnerDied };
  /// kOwnerDied: locked too, but the guarded data may be half changed; repair it before going on.
  [[nodiscard]] Result lock();
  void unlock();

 private:
  pthread_mutex_t mutex_;
};

/// Holds a RobustMutex for a scope; `owner_died()` says that the data must be repaired first.
class RobustLock {
 public:
  explicit RobustLock(RobustMutex& mutex)
      : mutex_(mutex), owner_died_(mutex.lock() == RobustMutex::Result::kOwnerDied) {}
  ~RobustLock() { mutex_.unlock(); }
  RobustLock(const RobustLock&) = delete;
  RobustLock& operator=(const RobustLock&) = delete;

  bool owner_died() const noexcept { return owner_died_; }

 private:
  RobustMutex& mutex_;
  bool owner_died_;
};

}  // namespace retinue
