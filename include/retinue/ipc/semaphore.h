#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "retinue/base/deadline.h"
#include "retinue/ipc/detail/sync_handle.h"

namespace retinue {

struct SemaphoreState;

/// A counter between all threads of all processes of a job that never goes below zero, as Python's
/// multiprocessing.Semaphore. acquire subtracts one, and waits while the counter is zero; release, by any thread, adds
/// one. Copies are the same semaphore. As an argument of spawn, or in a message, it arrives as the same semaphore. It
/// works with std::lock_guard and its like.
///
/// It has no owner: if a process is killed between acquire and release, the counter remains one less. If that matters,
/// use a Lock, which the next waiter then gets. A waiter may be killed without harm.
///
/// Blocking: acquire and lock; with a timeout or a Deadline at most that long. They spin for some microseconds while
/// the last thread to release ran on another CPU, and then sleep.
/// Threads: all functions, from any thread of any process of the job.
/// Errors: UsageError from all functions of a default-constructed semaphore. SystemError from a wait when the job's
/// guardian was killed.
class Semaphore : public detail::SyncHandle {
 public:
  using Time = std::chrono::nanoseconds;
  static constexpr std::uint32_t kMostValue = 0x7fffffffu;

  /// Makes an empty handle; assign a semaphore later.
  Semaphore() : Semaphore(SyncKind::kSemaphore) {}
  /// Makes a semaphore in the job of this process, or in another job. Errors: UsageError for less than 0 and more than
  /// kMostValue; SharedMemoryExhausted.
  explicit Semaphore(std::int64_t value) : Semaphore(JobMemory::current(), value) {}
  Semaphore(const std::shared_ptr<JobMemory>& memory, std::int64_t value)
      : Semaphore(SyncKind::kSemaphore, memory, value) {}

  void acquire() { acquire(Time::max()); }
  /// Returns false if the counter was zero all the time; a zero timeout only tries.
  bool acquire(Time timeout);
  bool acquire(Deadline deadline) { return acquire(deadline.left()); }
  /// Errors: UsageError, and nothing changes, for less than 0, and if the value would exceed kMostValue, or the initial
  /// value of a BoundedSemaphore.
  void release(std::int64_t count = 1);

  void lock() { acquire(); }
  bool try_lock() { return acquire(Time(0)); }
  void unlock() { release(); }

  /// Returns the value at the moment of the call.
  std::uint32_t get_value() const;

 protected:
  explicit Semaphore(SyncKind kind) noexcept : SyncHandle(kind) {}
  Semaphore(SyncKind kind, const std::shared_ptr<JobMemory>& memory, std::int64_t value);

 private:
  SemaphoreState& state() const;
};

/// A Semaphore that never exceeds its initial value: one release too many is an error.
class BoundedSemaphore : public Semaphore {
 public:
  BoundedSemaphore() : Semaphore(SyncKind::kBoundedSemaphore) {}
  explicit BoundedSemaphore(std::int64_t value) : BoundedSemaphore(JobMemory::current(), value) {}
  BoundedSemaphore(const std::shared_ptr<JobMemory>& memory, std::int64_t value)
      : Semaphore(SyncKind::kBoundedSemaphore, memory, value) {}
};

}  // namespace retinue
