#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "retinue/base/deadline.h"
#include "retinue/ipc/archive.h"
#include "retinue/ipc/shared_block.h"

namespace retinue {

struct EventState;

/// A flag that threads of all processes of a job wait for, as Python's multiprocessing.Event. Copies are the same
/// event; as an argument of spawn, or in a message, it arrives as the same event. A process may be killed anywhere in
/// here without harm to the others.
///
/// Blocking: wait; with a timeout or a Deadline at most that long. It spins for some microseconds, then it sleeps.
/// Threads: all functions, from any thread of any process of the job.
/// Errors: UsageError from all functions of a default-made one. SystemError from a wait when the job's guardian was
/// killed.
class Event {
 public:
  using Time = std::chrono::nanoseconds;

  /// None, until one is assigned.
  Event() = default;
  /// One that is not set, in the job of this process. Errors: SharedMemoryExhausted; UsageError without a Runtime.
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

  explicit operator bool() const noexcept { return static_cast<bool>(block_); }
  friend bool operator==(const Event& a, const Event& b) noexcept { return a.block_ == b.block_; }

  template <class Archive>
  void save(Archive& archive) const {
    archive(block_);
  }
  template <class Archive>
  void load(Archive& archive) {
    SharedBlock block;
    archive(block);
    *this = open(block);
  }

 private:
  explicit Event(SharedBlock block) : block_(std::move(block)) {}
  static Event open(const SharedBlock& block);
  EventState& state() const;

  SharedBlock block_;
};

}  // namespace retinue
