#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "retinue/base/error.h"

/// How ranks end, and the exceptions that report it to the process that started them.
namespace retinue {

/// How a rank ended.
enum class RankEnd {
  kRunning,     ///< The rank hasn't ended yet.
  kReturned,    ///< Its function returned, or it exited with code 0, also on the job's SIGTERM.
  kRaised,      ///< An exception left its function, or its program, which reported it in its error file.
  kExited,      ///< It exited with a code other than 0.
  kSignaled,    ///< A signal that the job didn't send killed it.
  kStopped,     ///< The job stopped it, because another rank failed or the caller asked for it.
  kNotStarted,  ///< The job failed first.
};

/// Returns "running", "returned", "raised", "exited", "signaled", "stopped" or "not_started".
const char* to_string(RankEnd end) noexcept;

/// The resources that a rank used until its end, including children that it waited for; zeros if unknown.
struct ResourceUse {
  std::chrono::nanoseconds user_cpu{0};
  std::chrono::nanoseconds system_cpu{0};
  std::size_t peak_memory_bytes = 0;  ///< Largest resident size, including job memory that the rank touched.
  std::chrono::nanoseconds lifetime{0};
};

/// How one rank ended, and why.
struct RankOutcome {
  int rank = 0;
  int local_rank = 0;
  /// Its rank in the largest world that it joined with a rank other than `rank`, as by join_world(); -1: in none.
  int world_rank = -1;
  int pid = 0;
  RankEnd end = RankEnd::kNotStarted;
  int exit_code = 0;  ///< For a rank that exited.
  int signal = 0;     ///< The signal that killed it, or the crash's signal if it exited after a crash.
  bool core_dumped = false;
  bool consequence = false;  ///< The rank only noticed that another one had failed (PeerLost).
  std::string type;          ///< Demangled type of the exception, if there was one.
  std::string message;  ///< what(), nested exceptions one per line; or a signal's meaning, or what keeps a rank alive.
  std::string stack;    ///< Of the throw or crash, one frame per line; empty if unknown.
  std::string stdout_log;  ///< Files that its output went to; empty if it went to the console only.
  std::string stderr_log;
  /// Folder with the last calls of all ranks that were started with it, as SpawnOptions::trace_dir describes; empty:
  /// none.
  std::string trace;
  std::chrono::nanoseconds ended{0};    ///< CLOCK_MONOTONIC at the throw, the crash or the end.
  std::chrono::nanoseconds stopped{0};  ///< CLOCK_MONOTONIC at the job's SIGTERM or SIGKILL for it; 0: none was sent.
  bool out_of_memory = false;           ///< The kernel killed it because memory ran out, and reported that.
  bool abandoned = false;               ///< SIGKILL did not end it in time, so it may still exist: see `message`.
  ResourceUse use;
};

/// An error that reports that a rank failed. It has the root cause and the outcome of every other rank; what() shows
/// all of it on one screen.
class ProcessException : public Error {
 public:
  /// `outcomes` has one entry per rank; `root_cause` is the index of the rank that failed first.
  ProcessException(const std::string& message, std::vector<RankOutcome> outcomes, std::size_t root_cause);

  int rank() const noexcept { return outcome().rank; }
  int pid() const noexcept { return outcome().pid; }
  /// Returns the outcome of the rank that failed first.
  const RankOutcome& outcome() const noexcept { return (*outcomes_)[root_cause_]; }
  const std::vector<RankOutcome>& outcomes() const noexcept { return *outcomes_; }

 private:
  std::shared_ptr<const std::vector<RankOutcome>> outcomes_;  // Shared, because copying an exception must not throw.
  std::size_t root_cause_;
};

/// An error that reports that a rank's function threw.
class ProcessRaisedException : public ProcessException {
 public:
  using ProcessException::ProcessException;
};

/// An error that reports that a rank ended without returning: by exit(), a signal, or std::terminate.
class ProcessExitedException : public ProcessException {
 public:
  using ProcessException::ProcessException;

  /// Returns the code, or the negative signal number, as PyTorch does.
  int exit_code() const noexcept;
  /// Returns 0 if the rank wasn't killed by a signal.
  int signal() const noexcept;
  /// Returns, for example, "SIGSEGV"; empty if the rank wasn't killed by a signal.
  std::string signal_name() const;
};

/// Returns the outcomes, at least one, as a JSON object; docs/reference/errors.md names its keys.
std::string failure_json(std::span<const RankOutcome> outcomes);
inline std::string to_json(const ProcessException& failure) {
  return failure_json(failure.outcomes());
}

}  // namespace retinue
