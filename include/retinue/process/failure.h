#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "retinue/base/error.h"

/// How ranks end, and the exceptions that tell it to the one who started them.
namespace retinue {

/// How a rank ended.
enum class RankEnd {
  kRunning,     ///< Not yet.
  kReturned,    ///< Its function returned, or it exited with code 0; also when it does so on the job's SIGTERM.
  kRaised,      ///< An exception left its function, or its program, which reported that in its error file.
  kExited,      ///< With a code other than 0.
  kSignaled,    ///< Killed by a signal that the job did not send.
  kStopped,     ///< By the job, because another rank failed or the caller asked for it.
  kNotStarted,  ///< The job failed first.
};

/// "running", "returned", "raised", "exited", "signaled", "stopped", "not_started".
const char* to_string(RankEnd end) noexcept;

/// What a rank used until its end, with its children that it waited for; zeros where nobody knows.
struct ResourceUse {
  std::chrono::nanoseconds user_cpu{0};
  std::chrono::nanoseconds system_cpu{0};
  std::size_t peak_memory_bytes = 0;  ///< Largest resident size, job memory that the rank touched included.
  std::chrono::nanoseconds lifetime{0};
};

/// What became of one rank.
struct RankOutcome {
  int rank = 0;
  int local_rank = 0;
  /// Its rank in the largest world that it joined as another rank than `rank`, as by join_world(); -1: in none.
  int world_rank = -1;
  int pid = 0;
  RankEnd end = RankEnd::kNotStarted;
  int exit_code = 0;  ///< Of a rank that exited.
  int signal = 0;     ///< That killed it; of a rank that exited after a crash, the crash's.
  bool core_dumped = false;
  bool consequence = false;  ///< The rank only noticed that another one had failed (PeerLost).
  std::string type;          ///< Demangled type of the exception, if there was one.
  std::string message;       ///< what(), nested exceptions one per line; or what a signal means, or what keeps a rank.
  std::string stack;         ///< Of the throw or crash, one frame per line; empty when unknown.
  std::string stdout_log;    ///< Files that its output went to; empty when it went to the console only.
  std::string stderr_log;
  /// Folder with the last calls of all ranks that were started with it, as SpawnOptions::trace_dir says; empty: none.
  std::string trace;
  std::chrono::nanoseconds ended{0};    ///< CLOCK_MONOTONIC at the throw, the crash or the end.
  std::chrono::nanoseconds stopped{0};  ///< CLOCK_MONOTONIC at the job's SIGTERM or SIGKILL for it, 0: none was sent.
  bool out_of_memory = false;           ///< The kernel killed it because memory ran out, and said so.
  bool abandoned = false;  ///< SIGKILL did not end it in time, so that it may still be there: see `message`.
  ResourceUse use;
};

/// A rank failed. Carries the root cause and what became of every other rank; what() tells all of it on one screen.
class ProcessException : public Error {
 public:
  /// `outcomes` has one entry per rank, `root_cause` is the index of the one that failed first.
  ProcessException(const std::string& message, std::vector<RankOutcome> outcomes, std::size_t root_cause);

  int rank() const noexcept { return outcome().rank; }
  int pid() const noexcept { return outcome().pid; }
  /// Of the rank that failed first.
  const RankOutcome& outcome() const noexcept { return (*outcomes_)[root_cause_]; }
  const std::vector<RankOutcome>& outcomes() const noexcept { return *outcomes_; }

 private:
  std::shared_ptr<const std::vector<RankOutcome>> outcomes_;  // Shared: copying an exception must not throw.
  std::size_t root_cause_;
};

/// A rank's function threw.
class ProcessRaisedException : public ProcessException {
 public:
  using ProcessException::ProcessException;
};

/// A rank ended without returning: by exit(), a signal, or std::terminate.
class ProcessExitedException : public ProcessException {
 public:
  using ProcessException::ProcessException;

  /// The code, or the negative signal number, as PyTorch gives it.
  int exit_code() const noexcept;
  /// 0 when the rank was not killed by a signal.
  int signal() const noexcept;
  /// "SIGSEGV"; empty when the rank was not killed by a signal.
  std::string signal_name() const;
};

/// The outcomes, of which there is at least one, as a JSON object; docs/reference/errors.md names its keys.
std::string failure_json(std::span<const RankOutcome> outcomes);
inline std::string to_json(const ProcessException& failure) {
  return failure_json(failure.outcomes());
}

}  // namespace retinue
