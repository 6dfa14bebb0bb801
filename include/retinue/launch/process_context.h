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
/// Destroying it doesn't stop running ranks. Ranks that the program started end with it: at once if daemonic, else
/// after an exit_grace. Ranks that a rank's function started are stopped when that rank ends. Ranks that a program,
/// itself a rank, started end with that program, also after an exit_grace.
/// Threads: join, wait, pids, status, terminate, kill and signal: any; the others one at a time.
/// Errors: UsageError from every function of a moved-from object.
class ProcessContext {
 public:
  ~ProcessContext();
  ProcessContext(ProcessContext&&) noexcept;
  ProcessContext& operator=(ProcessContext&&) noexcept;

  /// Waits until all ranks have ended. If one fails, the others are first ended by the stop policy.
  /// Errors: ProcessRaisedException or ProcessExitedException for the root cause, with all other ranks attached;
  /// further calls throw the same. SystemError if the guardian was killed.
  void join();

  /// As join(), but returns false if ranks still run after `timeout`.
  bool join(std::chrono::nanoseconds timeout);

  /// Waits like join(), and returns how the ranks ended and what they returned instead of throwing if a rank failed.
  /// Further calls return the same. Errors: SystemError if the guardian was killed.
  RunResult wait();

  /// As wait(), but returns nothing if ranks still run after `timeout`.
  std::optional<RunResult> wait(std::chrono::nanoseconds timeout);

  /// Returns the process ids by rank.
  std::vector<int> pids() const;

  /// Returns each rank's state now, by rank.
  std::vector<RankOutcome> status() const;

  /// Begins to end all ranks by the stop policy, with `first_signal` as its first signal; join() waits for their end.
  /// Ranks ended by this call don't count as failures. SIGKILL: without grace, also for ranks that are already being
  /// ended.
  /// Errors: UsageError for an invalid signal number.
  void terminate(int first_signal = SIGTERM);

  /// As terminate(), but sends SIGKILL at once.
  void kill();

  /// Sends `signal` to all ranks that still run, each with its process group. Errors: UsageError for an invalid signal
  /// number.
  void signal(int signal);

  /// Sends `signal` to one rank, if it still runs. Errors: UsageError for an invalid signal number or rank.
  void signal(int signal, int rank);

  /// Runs `fn(arguments...)` or `fn(RankContext&, arguments...)` in `rank`, which serves calls in the order in which
  /// they are made while it is in RankContext::serve_calls(). If the rank ends first, the call fails and isn't made
  /// again.
  /// Blocking: while 128 calls to the rank are in progress. Threads: of the Future, any.
  /// Errors: UsageError for an invalid rank. Closed after end_calls(). The Future's errors: as Future describes them,
  /// and Closed if this object was destroyed first.
  template <auto fn, class... Arguments>
  Future<detail::TaskResult<fn>> call(int rank, Arguments&&... arguments) {
    using Result = detail::TaskResult<fn>;
    const detail::TaskClientPtr client = calls_to(rank);
    detail::Encoded encoded = detail::encode<fn, detail::EntryStyle::kProcess>(std::forward<Arguments>(arguments)...);
    return {client,
            {detail::submit_task(*client, detail::task_function<fn>(), std::move(encoded), {"ProcessContext::call"})},
            &detail::task_value<Result>};
  }

  /// Allows no more calls: serve_calls() returns in each rank once the calls already made have been served.
  void end_calls();

  class Impl;
  explicit ProcessContext(std::unique_ptr<Impl> impl);
  /// For the launch module only.
  Impl& impl() const noexcept { return *impl_; }

 private:
  detail::TaskClientPtr calls_to(int rank) const;
  Impl& impl(const char* function) const;

  std::unique_ptr<Impl> impl_;
};

}  // namespace retinue
