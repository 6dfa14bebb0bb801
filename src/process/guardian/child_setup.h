#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "os/files/file_descriptor.h"
#include "process/guardian/start_request.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {

/// Runs a function rank in the calling process and ends it. The module launch, which knows functions, gives it.
using RankMain = void (*)(std::uint32_t process_slot, const StartRequest& request);

/// What a process between its fork and its own code must know.
struct ChildSetup {
  std::shared_ptr<JobMemory> memory;
  int control_send_fd = -1;              ///< How ranks reach the guardian.
  std::vector<int> guardian_fds;         ///< The guardian's own, closed in a rank.
  std::vector<FileDescriptor> standard;  ///< Descriptors 0, 1, 2 of the caller.
  FileDescriptor directory;              ///< The caller's. It may end before its ranks have entered it.
  sigset_t signal_mask;                  ///< The program's, as it was at its Runtime.
  Credentials credentials;               ///< The guardian's.
  std::string process_name;              ///< As /proc/self/comm shows it.
  RankMain rank_main = nullptr;
};

/// The environment variable by which an executed process finds its job:
/// "job-id,memfd,control-fd,slot,role,context-id,pid". A program's rank has no pid: the process that makes a Runtime
/// may be a child, or the second program of a script.
constexpr const char* kBootstrapVariable = "RETINUE_BOOTSTRAP";

/// What an executed process is to be.
enum class BootstrapRole : std::uint32_t { kFunctionRank = 0, kProgramRank = 1, kGuardian = 2 };

/// What the rank's environment has that its caller's has not: RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, as
/// torchrun sets them, and what the request says.
std::map<std::string, std::string> rank_environment(const JobMemory& memory, const ProcessSlot& slot,
                                                    const StartRequest& request);

/// In a rank that its caller forked, whose attributes it has: makes what differs its own. Errors: SystemError.
void set_up_forked_rank(const JobMemory& memory, const ProcessSlot& slot, const StartRequest& request);

/// `pid`: of a function's rank, or of a guardian, so that no child of theirs takes itself for it; else 0.
std::string bootstrap_value(const JobMemory& memory, int memfd, int control_fd, std::uint32_t slot, BootstrapRole role,
                            pid_t pid);

/// In a fork of the guardian: becomes the rank of `slot` and runs its function. Does not return; what goes wrong before
/// that is written into the slot's crash record.
[[noreturn]] void run_child(const ChildSetup& setup, const StartRequest& request, std::uint32_t slot, pid_t guardian);

/// The guardian's side of a rank that is executed: returns its pid when it has been, or when what went wrong is in the
/// slot's crash record; -1 and errno where there is no child. Errors: std::bad_alloc.
pid_t start_program(const ChildSetup& setup, const StartRequest& request, std::uint32_t slot);

/// Writes `message` as the slot's failure, unless it has one.
void record_failure(CrashRecord& record, const char* type, const char* message);

}  // namespace retinue
