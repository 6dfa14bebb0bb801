#pragma once

#include <chrono>
#include <csignal>
#include <memory>
#include <vector>

#include "retinue/process/failure.h"

namespace retinue {

/// The ranks that one call of spawn or start_processes started.
///
/// Threads: one at a time. Destroying it lets running ranks go on; they are stopped when the program ends.
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

  /// Process ids by rank.
  std::vector<int> pids() const;

  /// Each rank's state now, by rank.
  std::vector<RankOutcome> status() const;

  /// Begins to end all ranks by the stop policy, whose first signal is `first_signal`; join() waits for it. Ranks ended
  /// this way are no failure. SIGKILL: without grace, also for ranks that are being ended already.
  /// Errors: UsageError for a wrong number.
  void terminate(int first_signal = SIGTERM);

  /// Sends `signal` to all ranks that still run, each with its process group. Errors: UsageError for a wrong number.
  void signal(int signal);

  class Impl;
  explicit ProcessContext(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace retinue
