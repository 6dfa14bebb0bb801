#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "retinue/base/deadline.h"
#include "retinue/ipc/sync_handle.h"

namespace retinue {

struct SemaphoreState;

/// A counter between all threads of all processes of a job that never goes below zero: acquire takes one off, and waits
/// while it is zero; release, by anybody, adds one. As Python's multiprocessing.Semaphore. Copies are the same one; as
/// an argument of spawn, or in a message, it arrives as the same one. It serves std::lock_guard and its like.
///
/// Nobody owns what was taken off: if a process is killed between acquire and release, the counter stays one less.
/// Where that matters, take a Lock, which is handed on. A waiter may be killed without harm.
///
/// Blocking: acquire and lock; with a timeout or a Deadline at most that long. They spin for some microseconds while
/// the last one to release ran on another CPU, and then sleep.
/// Threads: all functions, from any thread of any process of the job.
/// Errors: UsageError from all functions of a default-made one. SystemError from a wait when the job's guardian was
/// killed.
class Semaphore : public detail::SyncHandle {
 public:
  using Time = std::chrono::nanoseconds;
  static constexpr std::uint32_t kMostValue = 0x7fffffffu;

  /// None, until one is assigned.
  Semaphore() : Semaphore(SyncKind::kSemaphore) {}
  /// In the job of this process, or in another's. Errors: UsageError for less than 0 and more than kMostValue;
  /// SharedMemoryExhausted.
  explicit Semaphore(std::int64_t value) : Semaphore(JobMemory::current(), value) {}
  Semaphore(const std::shared_ptr<JobMemory>& memory, std::int64_t value)
      : Semaphore(SyncKind::kSemaphore, memory, value) {}

  void acquire() { acquire(Time::max()); }
  /// False when it was zero all the time; a zero timeout only tries.
  bool acquire(Time timeout);
  bool acquire(Deadline deadline) { return acquire(deadline.left()); }
  /// Errors: UsageError, and nothing changes, for less than 0, and if the value would go beyond kMostValue, or beyond
  /// the first one of a BoundedSemaphore.
  void release(std::int64_t count = 1);

  void lock() { acquire(); }
  bool try_lock() { return acquire(Time(0)); }
  void unlock() { release(); }

  /// True in the moment of looking.
  std::uint32_t get_value() const;

 protected:
  explicit Semaphore(SyncKind kind) noexcept : SyncHandle(kind) {}
  Semaphore(SyncKind kind, const std::shared_ptr<JobMemory>& memory, std::int64_t value);

 private:
  SemaphoreState& state() const;
};

/// A Semaphore that never goes beyond its first value: one release too many is an error.
class BoundedSemaphore : public Semaphore {
 public:
  BoundedSemaphore() : Semaphore(SyncKind::kBoundedSemaphore) {}
  explicit BoundedSemaphore(std::int64_t value) : BoundedSemaphore(JobMemory::current(), value) {}
  BoundedSemaphore(const std::shared_ptr<JobMemory>& memory, std::int64_t value)
      : Semaphore(SyncKind::kBoundedSemaphore, memory, value) {}
};

}  // namespace retinue
