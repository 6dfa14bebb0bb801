#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "retinue/base/error.h"

/// How ranks end, and the exceptions that tell it to the one who started them.
namespace retinue {

/// How a rank ended.
enum class RankEnd {
  kRunning,     ///< Not yet.
  kReturned,    ///< Its function returned, or it exited with code 0.
  kRaised,      ///< An exception left its function.
  kExited,      ///< With a code other than 0.
  kSignaled,    ///< Killed by a signal that the job did not send.
  kStopped,     ///< By the job, because another rank failed or the caller asked for it.
  kNotStarted,  ///< The job failed first.
};

/// What became of one rank.
struct RankOutcome {
  int rank = 0;
  int local_rank = 0;
  int pid = 0;
  RankEnd end = RankEnd::kNotStarted;
  int exit_code = 0;  ///< Of a rank that exited.
  int signal = 0;     ///< That killed it; of a rank that exited after a crash, the crash's.
  bool core_dumped = false;
  bool consequence = false;           ///< The rank only noticed that another one had failed (PeerLost).
  std::string type;                   ///< Demangled type of the exception, if there was one.
  std::string message;                ///< what(), nested exceptions one per line; or what a signal means.
  std::string stack;                  ///< Of the throw or crash, one frame per line; empty when unknown.
  std::string stdout_log;             ///< The file that holds its standard output; empty when there is none.
  std::string stderr_log;             ///< The same for its standard error.
  std::chrono::nanoseconds ended{0};  ///< CLOCK_MONOTONIC at the throw, the crash or the end.
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

}  // namespace retinue
