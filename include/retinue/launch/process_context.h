#pragma once

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "retinue/launch/future.h"
#include "retinue/launch/run_result.h"
#include "retinue/process/failure.h"

namespace retinue {

/// The ranks that one call of spawn or start_processes started.
///
/// Destroying it lets running ranks go on. What the program started ends with it: at once if daemonic, else after an
/// exit_grace. What a rank's function started is stopped when that rank ends; what a program that is a
/// rank started ends with that program, after an exit_grace, too.
/// Threads: one at a time.
/// Errors: UsageError from every function of one that was moved from.
class ProcessContext {
 public:
  ~ProcessContext();
  ProcessContext(ProcessContext&&) noexcept;
  ProcessContext& operator=(ProcessContext&&) noexcept;

  /// Waits until all ranks have ended. When one fails, the others are ended by the stop policy first.
  /// Errors: ProcessRaisedException or ProcessExitedException for the root cause, with all other ranks attached; again
  /// the same when called again. SystemError if the guardian was killed.
  void join();

  /// The same, but returns false when ranks still run after `timeout`.
  bool join(std::chrono::nanoseconds timeout);

  /// Waits like join(), and gives how the ranks ended and what they returned instead of throwing for a rank's failure;
  /// the same again when called again. Errors: SystemError if the guardian was killed.
  RunResult wait();

  /// The same, but nothing when ranks still run after `timeout`.
  std::optional<RunResult> wait(std::chrono::nanoseconds timeout);

  /// Process ids by rank.
  std::vector<int> pids() const;

  /// Each rank's state now, by rank.
  std::vector<RankOutcome> status() const;

  /// Begins to end all ranks by the stop policy, whose first signal is `first_signal`; join() waits for it. Ranks ended
  /// this way are no failure. SIGKILL: without grace, also for ranks that are being ended already.
  /// Errors: UsageError for a wrong number.
  void terminate(int first_signal = SIGTERM);

  /// The same by SIGKILL at once.
  void kill();

  /// Sends `signal` to all ranks that still run, each with its process group. Errors: UsageError for a wrong number.
  void signal(int signal);

  /// Sends it to one rank, if that still runs. Errors: UsageError for a wrong number or rank.
  void signal(int signal, int rank);

  /// Runs `fn(arguments...)`, or `fn(RankContext&, arguments...)`, in `rank`, which serves calls while it is in
  /// RankContext::serve_calls(), in the order in which they are made. A rank that ends before fails the call, which is
  /// not made again. Blocking: while 128 calls to the rank are under way. Threads: of the Future, any.
  /// Errors: UsageError for a wrong rank. Closed after end_calls(). Those of the Future: as Future has them, and Closed
  /// when this object is gone before.
  template <auto fn, class... Arguments>
  Future<detail::TaskResult<fn>> call(int rank, Arguments&&... arguments) {
    using Result = detail::TaskResult<fn>;
    const detail::DeskPtr desk = calls_to(rank);
    detail::Encoded encoded = detail::encode<fn, detail::EntryStyle::kProcess>(std::forward<Arguments>(arguments)...);
    return {desk,
            {detail::give_task(*desk, detail::task_function<fn>(), std::move(encoded), {"ProcessContext::call"})},
            &detail::task_value<Result>};
  }

  /// No more calls: serve_calls() returns in each rank when those that were made are served.
  void end_calls();

  class Impl;
  explicit ProcessContext(std::unique_ptr<Impl> impl);
  /// For the launch room only.
  Impl& impl() const noexcept { return *impl_; }

 private:
  detail::DeskPtr calls_to(int rank) const;
  Impl& impl(const char* function) const;

  std::unique_ptr<Impl> impl_;
};

}  // namespace retinue
