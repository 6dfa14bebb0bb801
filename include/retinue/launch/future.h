#pragma once

#include <chrono>
#include <utility>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/launch/task_desk.h"
#include "retinue/process/failure.h"

namespace retinue {

/// What a function that runs in another process will return. Copies mean the same result.
///
/// While a thread waits here, it also sees to the processes: it notices dead ones and starts others in their place.
/// Dropping a Future does not stop what runs. A Future may outlive its Pool or ProcessContext.
/// Threads: any number, each with a copy or with the same one.
/// Errors: UsageError from all functions of a default-made one. SystemError if the job's guardian was killed.
template <class T>
class Future {
 public:
  using Time = std::chrono::nanoseconds;
  /// Of several tasks that are done, the value. Used by Pool and ProcessContext.
  using Read = T (*)(std::span<const detail::TaskPtr> tasks);

  Future() = default;
  Future(detail::DeskPtr desk, std::vector<detail::TaskPtr> tasks, Read read)
      : desk_(std::move(desk)), tasks_(std::move(tasks)), read_(read) {}

  /// Whether there is something to wait for.
  bool valid() const noexcept { return desk_ != nullptr; }

  /// Whether get() would not block.
  bool ready() const { return wait(Time(0)); }

  void wait() const { wait(Time::max()); }
  /// False when it is not done after `timeout`.
  bool wait(Time timeout) const { return detail::wait_for_all(desk(), tasks_, timeout); }

  /// Waits, and gives the value; again the same when called again.
  /// Errors: ProcessRaisedException when the function threw, with its message and stack; the worker goes on.
  /// ProcessExitedException when the process that ran it ended: killed, crashed, or by exit(). Closed when the Pool or
  /// the ProcessContext was ended before.
  T get() const { return get(Time::max()); }
  /// Errors: also TimeoutError when it is not done in time; it goes on, and can be waited for again.
  T get(Time timeout) const {
    if (!wait(timeout)) detail::throw_not_in_time(*tasks_.front(), timeout);
    return read_(tasks_);
  }

 private:
  detail::TaskDesk& desk() const {
    if (desk_ == nullptr) throw UsageError("this Future is none: assign one to it");
    return *desk_;
  }

  detail::DeskPtr desk_;
  std::vector<detail::TaskPtr> tasks_;
  Read read_ = nullptr;
};

}  // namespace retinue
