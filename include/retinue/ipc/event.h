#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "retinue/base/deadline.h"
#include "retinue/ipc/detail/sync_handle.h"

namespace retinue {

struct EventState;

/// A flag that threads of all processes of a job can wait for, as Python's multiprocessing.Event. Copies are the same
/// event. As an argument of spawn, or in a message, it arrives as the same event. A process may be killed at any point
/// in these functions without harm to the others.
///
/// Blocking: wait; with a timeout or a Deadline at most that long. It spins for some microseconds, then it sleeps.
/// Threads: all functions, from any thread of any process of the job.
/// Errors: UsageError from all functions of an empty handle. SystemError from a wait when the job's guardian was
/// killed.
class Event : public detail::SyncHandle {
 public:
  using Time = std::chrono::nanoseconds;

  /// Makes an event that isn't set, in the job of this process. Without a Runtime it makes an empty handle.
  /// Errors: SharedMemoryExhausted.
  Event();
  /// Makes an empty handle; assign an event later.
  explicit Event(std::nullptr_t) noexcept : SyncHandle(SyncKind::kEvent) {}
  /// Errors: UsageError without a Runtime.
  static Event create() { return create(JobMemory::current()); }
  static Event create(const std::shared_ptr<JobMemory>& memory);

  /// Sets the event and releases all waiters.
  void set();
  void clear();
  bool is_set() const;

  void wait() const { wait(Time::max()); }
  /// Returns whether it was set in time, even if only for a moment.
  bool wait(Time timeout) const;
  bool wait(Deadline deadline) const { return wait(deadline.left()); }

 private:
  EventState& state() const;
};

}  // namespace retinue
