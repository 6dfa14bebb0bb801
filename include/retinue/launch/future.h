#pragma once

#include <chrono>
#include <span>
#include <utility>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/launch/detail/task_client.h"
#include "retinue/process/failure.h"

namespace retinue {

/// The result of a function that runs in another process and may not have returned yet. Copies refer to the same
/// result.
///
/// A thread that waits here also looks after the processes: it notices dead ones and starts replacements. Destroying a
/// Future doesn't stop the function. A Future may outlive its Pool or ProcessContext.
/// Threads: any number, each with its own copy or all with the same one.
/// Errors: UsageError from all functions of a default-constructed Future; SystemError if the job's guardian was killed.
template <class T>
class Future {
 public:
  using Time = std::chrono::nanoseconds;
  /// Returns the value of one or more tasks that are done. Pool and ProcessContext pass such a function.
  using Read = T (*)(std::span<const detail::TaskPtr> tasks);

  Future() = default;
  Future(detail::TaskClientPtr client, std::vector<detail::TaskPtr> tasks, Read read)
      : client_(std::move(client)), tasks_(std::move(tasks)), read_(read) {}

  /// Returns whether there is a result to wait for.
  bool valid() const noexcept { return client_ != nullptr; }

  /// Returns whether get() would return or throw without blocking.
  bool ready() const { return wait(Time(0)); }

  void wait() const { wait(Time::max()); }
  /// Returns false if the result isn't ready after `timeout`.
  bool wait(Time timeout) const { return detail::wait_for_all(client(), tasks_, timeout); }

  /// Waits for the value and returns it. Further calls return the same value.
  /// Errors: ProcessRaisedException if the function threw, with its message and stack; the worker continues.
  /// ProcessExitedException if the process that ran the function was killed, crashed or called exit(). Closed if the
  /// Pool or the ProcessContext was ended first.
  T get() const { return get(Time::max()); }
  /// Errors: also TimeoutError if the result isn't ready in time; the function continues, and you can wait for it
  /// again.
  T get(Time timeout) const {
    if (!wait(timeout)) detail::throw_not_in_time(*tasks_.front(), timeout);
    return read_(tasks_);
  }

 private:
  detail::TaskClient& client() const {
    if (client_ == nullptr) throw UsageError("this Future is empty: assign a Future to it");
    return *client_;
  }

  detail::TaskClientPtr client_;
  std::vector<detail::TaskPtr> tasks_;
  Read read_ = nullptr;
};

}  // namespace retinue
