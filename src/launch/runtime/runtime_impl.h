#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "os/files/file_descriptor.h"
#include "os/process/spare_descriptors.h"
#include "process/guardian/child_setup.h"
#include "process/guardian/job_sweep.h"
#include "retinue/launch/detail/entry.h"
#include "retinue/launch/runtime.h"

namespace retinue {

class Runtime::Impl {
 public:
  Impl(int argc, char** argv, std::vector<std::string> new_command)
      : arguments(argv, argv + argc), command(std::move(new_command)), exceptions(std::uncaught_exceptions()) {}
  ~Impl();

  /// Makes the job that this program starts: memory, guardian, and the program's own slot.
  void make_job(const RuntimeOptions& options);
  /// Joins the job that the bootstrap variable names, if there is one. False: this program is to make its own.
  bool join_job();

  /// In the program, when the guardian is dead: ends what the job's ranks left behind. Errors: SystemError.
  void sweep() {
    if (!spare_descriptors) return sweep_job(*memory);
    spare_descriptors->lend([this] { sweep_job(*memory); });
  }

  /// Errors: UsageError where the environment says that this process, which is no rank, is one of several.
  void refuse_other_world() const;

  /// Waits until the guardian serves requests. Errors: SystemError.
  void wait_for_guardian();

  /// What /proc/self/exe is executed with to be this program again: `command`, or what this process was executed with.
  /// That is the loader where it was started as `ld-linux.so ./program`, whose own words come before the program's.
  std::vector<std::string> command_line() const;

  std::vector<std::string> arguments;
  std::vector<std::string> command;  ///< RuntimeOptions::command.
  std::shared_ptr<JobMemory> memory;
  FileDescriptor control_send;
  FileDescriptor lifeline;        ///< Write end; its end of file tells the guardian that the program is gone.
  FileDescriptor guardian_pidfd;  ///< In the program that made the job only.
  std::optional<SpareDescriptors> spare_descriptors;  ///< For sweep(), which must not fail for want of one.
  pid_t guardian = 0;
  pid_t owner = 0;  ///< The process that made the job; copies of this object in forks do nothing.
  bool is_rank = false;
  std::string why_no_rank;  ///< Where the environment says that it is a rank of a job, and it could not be.
  int exceptions;           ///< In flight when this was made: one more at its end means that the program fails.

 private:
  void fork_guardian(FileDescriptor control_receive, FileDescriptor lifeline_read);
  void execute_guardian(FileDescriptor control_receive, FileDescriptor lifeline_read);
  void shut_down_guardian() noexcept;
  void end_own_starts() noexcept;
  void print_running() const;
  bool wait_for_ranks(std::chrono::milliseconds patience) const;
};

/// At the end of this process: tells what failed and nobody asked for, and makes an exit code of 0 a 1 then. `memory`
/// is mapped until the process ends.
void fail_exit_after_unretrieved_failures(JobMemory* memory);

/// Runs the function of the rank in `process_slot` in this process and ends it: the guardian's RankMain.
[[noreturn]] void run_function_rank(std::uint32_t process_slot, const StartRequest& request);

enum class RankOrigin { kForked, kExecuted };

/// The same for a closure: `body` runs as the rank in `process_slot`.
[[noreturn]] void run_rank_body(std::uint32_t process_slot, const detail::RankBody& body, RankOrigin origin);

}  // namespace retinue
