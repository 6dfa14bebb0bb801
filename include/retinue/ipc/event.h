#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "retinue/base/deadline.h"
#include "retinue/ipc/sync_handle.h"

namespace retinue {

struct EventState;

/// A flag that threads of all processes of a job wait for, as Python's multiprocessing.Event. Copies are the same
/// event; as an argument of spawn, or in a message, it arrives as the same event. A process may be killed anywhere in
/// here without harm to the others.
///
/// Blocking: wait; with a timeout or a Deadline at most that long. It spins for some microseconds, then it sleeps.
/// Threads: all functions, from any thread of any process of the job.
/// Errors: UsageError from all functions of one that is none. SystemError from a wait when the job's guardian was
/// killed.
class Event : public detail::SyncHandle {
 public:
  using Time = std::chrono::nanoseconds;

  /// A new one that is not set, in the job of this process; without a Runtime none, until one is assigned.
  /// Errors: SharedMemoryExhausted.
  Event();
  /// None, until one is assigned.
  explicit Event(std::nullptr_t) noexcept : SyncHandle(SyncKind::kEvent) {}
  /// Errors: UsageError without a Runtime.
  static Event create() { return create(JobMemory::current()); }
  static Event create(const std::shared_ptr<JobMemory>& memory);

  /// Lets all go who wait.
  void set();
  void clear();
  bool is_set() const;

  void wait() const { wait(Time::max()); }
  /// Whether it was set in time, be it for a moment only.
  bool wait(Time timeout) const;
  bool wait(Deadline deadline) const { return wait(deadline.left()); }

 private:
  EventState& state() const;
};

}  // namespace retinue
