#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace retinue {

/// A lock in shared memory that survives its holder's death: the next one learns of it and repairs what it guards.
class RobustMutex {
 public:
  void init();
  /// The same, and it tells its holder that it is that: kHeldByCaller.
  void init_checked();

  enum class Result { kLocked, kOwnerDied, kBusy, kHeldByCaller };
  /// kOwnerDied: locked too, but the guarded data may be half changed; repair it before going on.
  /// Errors: TimeoutError, which names the holder, when it is not free after `patience`. Where the holder changes
  /// `progress`: after a `patience` without a change.
  [[nodiscard]] Result lock(std::chrono::nanoseconds patience, const std::atomic<std::uint64_t>* progress = nullptr);
  /// kBusy when it is not free after `patience`, with 0 at once. Errors: SystemError.
  [[nodiscard]] Result try_lock(std::chrono::nanoseconds patience);
  void unlock();

  /// Tables are held for less time than so many pauses take, and a sleep takes longer.
  static constexpr int kPausesOfASleep = 200;
  /// Returns when it seems to be free, or after so many pauses.
  void spin_while_held(int pauses) const noexcept;

  /// Id of the thread that holds it now, 0 when it is free.
  std::uint32_t holder() const noexcept;
  /// Whether its holder died with it and nobody has taken it since.
  bool is_orphaned() const noexcept;

 private:
  void init(int type);

  pthread_mutex_t mutex_;
};

/// Holds a RobustMutex for a scope; `owner_died()` says that the data must be repaired first.
class RobustLock {
 public:
  RobustLock(RobustMutex& mutex, std::chrono::nanoseconds patience,
             const std::atomic<std::uint64_t>* progress = nullptr)
      : mutex_(mutex), owner_died_(mutex.lock(patience, progress) == RobustMutex::Result::kOwnerDied) {}
  ~RobustLock() { mutex_.unlock(); }
  RobustLock(const RobustLock&) = delete;
  RobustLock& operator=(const RobustLock&) = delete;

  bool owner_died() const noexcept { return owner_died_; }

 private:
  RobustMutex& mutex_;
  bool owner_died_;
};

}  // namespace retinue
