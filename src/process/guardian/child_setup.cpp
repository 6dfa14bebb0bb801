#include "process/guardian/child_setup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/parse_number.h"
#include "ipc/memory/context_table.h"
#include "ipc/memory/process_table.h"
#include "os/files/environment.h"
#include "os/machine/cpus.h"
#include "os/process/process_calls.h"
#include "os/process/scheduling.h"
#include "os/sync/clock.h"
#include "os/testing/fault_point.h"
#include "process/crash/crash_writer.h"
#include "process/failure/error_file.h"
#include "process/guardian/job_sweep.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

// What a shell returns for a program that is not there, and for one that cannot be executed.
constexpr int kNotFound = 127;
constexpr int kNotExecutable = 126;

void take_standard_descriptors(const ChildSetup& setup) {
  for (std::size_t i = 0; i < setup.standard.size() && i < 3; ++i) {
    const int target = static_cast<int>(i);
    int source = setup.standard[i].get();
    // A rank is not in the terminal's foreground group: reading from the terminal would stop it.
    const bool from_terminal = i == 0 && isatty(source) == 1;
    const FileDescriptor null(from_terminal ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1);
    if (from_terminal) source = null.get();
    if (dup2(source, target) < 0) throw SystemError("passing the caller's standard descriptors", errno);
  }
  // Else whoever reads from the rank would see no end of file when it closes its output.
  for (const FileDescriptor& standard : setup.standard)
    if (standard.get() > 2) close(standard.get());
}

void close_input() {
  const FileDescriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null || dup2(null.get(), 0) < 0) throw SystemError("giving the rank /dev/null as standard input", errno);
}

void reset_signals(const sigset_t& mask) {
  for (const int signal : {SIGCHLD, SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(signal, SIG_DFL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
}

/// A copy of `fd` that survives an exec.
int inheritable(int fd) {
  const int copy = fcntl(fd, F_DUPFD, 3);
  if (copy < 0) throw SystemError("passing the job's descriptors", errno);
  return copy;
}

std::string advice_on(int error, const std::string& file) {
  if (error == EACCES)
    return ": it must be a file with execute permission (chmod +x), in directories with search permission (x)";
  if (error != ENOENT) return "";
  if (file.find('/') == std::string::npos) return ": no directory in PATH contains it";
  return access(file.c_str(), F_OK) == 0 ? ": the interpreter that its first line names does not exist" : "";
}

/// Returns the exit code.
int note_failed_execution(CrashRecord& record, const std::string& file, int error) {
  const std::string message = SystemError(fmt::format("executing '{}'", file), error).what();
  record_failure(record, "retinue::SystemError", (message + advice_on(error, file)).c_str());
  return error == ENOENT || error == ENOTDIR ? kNotFound : kNotExecutable;
}

/// What a program is executed with; made before the fork, so that nothing of it is lost in the child.
class Execution {
 public:
  Execution(const Command& command, std::vector<std::string> environment)
      : command_(command), variables_(std::move(environment)) {
    const std::string ours = std::string(kBootstrapVariable) + "=";
    std::erase_if(variables_, [&](const std::string& variable) { return variable.starts_with(ours); });
    variables_.push_back(ours);
    for (const std::string& argument : command_.arguments) arguments_.push_back(const_cast<char*>(argument.c_str()));
    arguments_.push_back(nullptr);
    for (std::string& variable : variables_) environment_.push_back(variable.data());
    environment_.push_back(nullptr);
  }

  /// What execvp() puts on it grows with the number of arguments.
  std::size_t stack_bytes() const { return (std::size_t{256} << 10) + 2 * sizeof(char*) * arguments_.size(); }

  /// In the child. Errors: SystemError, before it is tried.
  [[noreturn]] void run(const ChildSetup& setup, std::uint32_t slot, BootstrapRole role) {
    variables_.back() +=
        bootstrap_value(*setup.memory, inheritable(setup.memory->memfd()), inheritable(setup.control_send_fd), slot,
                        role, role == BootstrapRole::kFunctionRank ? getpid() : 0);
    environment_[variables_.size() - 1] = variables_.back().data();
    environ = environment_.data();  // Whose PATH it is that execvp() looks into.
    execvp(command_.file.c_str(), arguments_.data());
    _exit(note_failed_execution(process_slot(*setup.memory, slot).crash, command_.file, errno));
  }

 private:
  const Command& command_;
  std::vector<std::string> variables_;
  std::vector<char*> arguments_;
  std::vector<char*> environment_;
};

void leave_guardian_behind(const ChildSetup& setup, const ProcessSlot& slot, pid_t guardian) {
  die_with_parent(guardian);
  allow_ptrace(guardian);  // Its helpers.
  setpgid(0, 0);
  request_default_slice();
  prctl(PR_SET_NAME, setup.process_name.c_str());
  for (const int fd : setup.guardian_fds) close(fd);
  fault_point("rank.forked", slot.rank);
}

/// The caller's, which may have given up rights since its Runtime. What follows is done by those.
void take_credentials(const ChildSetup& setup, const Credentials& wanted, pid_t guardian) {
  if (wanted == setup.credentials) return;
  wanted.take(setup.credentials);
  die_with_parent(guardian);
}

void enter_callers_directory(const ChildSetup& setup, const StartRequest& request) {
  if (fchdir(setup.directory.get()) != 0)
    throw SystemError("entering the caller's directory " + request.attributes.directory, errno);
  close(setup.directory.get());
}

void enter_directory(const StartRequest& request) {
  if (!request.directory.empty() && chdir(request.directory.c_str()) != 0)
    throw SystemError("entering " + request.directory, errno);
}

void place(const RankRequest& rank) {
  if (!rank.cpus.empty()) set_allowed_cpus(rank.cpus);
  if (rank.memory_node >= 0) bind_memory(rank.memory_node);
}

/// Takes on what the rank is given from outside, all but its environment.
void set_up(const ChildSetup& setup, const StartRequest& request, const ProcessSlot& slot,
            const Credentials& credentials, pid_t guardian) {
  enter_callers_directory(setup, request);
  take_standard_descriptors(setup);
  const RankRequest& rank = request.ranks.at(static_cast<std::size_t>(slot.rank));
  if (rank.has_no_input) close_input();
  request.attributes.enter();
  place(rank);
  take_credentials(setup, credentials, guardian);
  enter_directory(request);
  direct_streams(request.logs, slot.local_rank);
  reset_signals(setup.signal_mask);
}

/// -1 where it is none.
int number_in(const std::map<std::string, std::string>& environment, const char* variable) {
  return parse_number<int>(environment.at(variable)).value_or(-1);
}

/// What goes wrong in `body` is the rank's failure.
template <class Body>
[[noreturn]] void end_in_failure(ProcessSlot& slot, Body body) {
  try {
    body(slot);
  } catch (const SystemError& error) {
    record_failure(slot.crash, "retinue::SystemError", error.what());
  } catch (const std::exception& error) {
    record_failure(slot.crash, "retinue::Error", error.what());
  }
  _exit(kNotFound);
}

}  // namespace

std::map<std::string, std::string> rank_environment(const JobMemory& memory, const ProcessSlot& slot,
                                                    const StartRequest& request) {
  std::map<std::string, std::string> environment = request.ranks.at(static_cast<std::size_t>(slot.rank)).environment;
  const std::string world_size = std::to_string(request.ranks.size());
  environment.emplace("RANK", std::to_string(slot.rank));  // Without effect where the request says otherwise.
  environment.emplace("LOCAL_RANK", std::to_string(slot.local_rank));
  environment.emplace("WORLD_SIZE", world_size);
  environment.emplace("LOCAL_WORLD_SIZE", world_size);
  environment.emplace(kJobVariable, job_variable_value(memory));
  if (!request.logs.directory.empty())
    environment.emplace(kErrorFileVariable, request.logs.error_file_of(slot.local_rank));
  return environment;
}

void set_up_forked_rank(const JobMemory& memory, const ProcessSlot& slot, const StartRequest& request) {
  allow_ptrace(process_slot(memory, kGuardianSlot).pid.load(std::memory_order_relaxed));
  replace_environment(request.attributes.environment, rank_environment(memory, slot, request));
  enter_directory(request);
  place(request.ranks.at(static_cast<std::size_t>(slot.rank)));
  direct_streams(request.logs, slot.local_rank);
}

std::string bootstrap_value(const JobMemory& memory, int memfd, int control_fd, std::uint32_t slot, BootstrapRole role,
                            pid_t pid) {
  const std::uint32_t context = process_slot(memory, slot).context;
  const std::uint32_t context_id = context < kMaxContexts ? context_record(memory, context).id : 0;
  return fmt::format("{},{},{},{},{},{},{}", memory.header().job_id, memfd, control_fd, slot,
                     static_cast<std::uint32_t>(role), context_id, pid);
}

void record_failure(CrashRecord& record, const char* type, const char* message) {
  if (!claim_crash_record(record)) return;
  record.kind = CrashKind::kException;
  record.time_ns = monotonic_ns();
  record.consequence = 0;
  record.signal = 0;
  record.frame_count = record.object_count = 0;
  FixedText(record.type) << type;
  FixedText(record.message) << message;
  complete_crash_record(record);
}

void run_child(const ChildSetup& setup, const StartRequest& request, std::uint32_t slot_index, pid_t guardian) {
  end_in_failure(process_slot(*setup.memory, slot_index), [&](ProcessSlot& slot) {
    leave_guardian_behind(setup, slot, guardian);
    setup.memory->set_lock_patience(JobMemory::kLockPatience);  // The guardian has less.
    replace_environment(request.attributes.environment, rank_environment(*setup.memory, slot, request));
    unsetenv(kBootstrapVariable);
    set_up(setup, request, slot, request.attributes.credentials, guardian);
    setup.rank_main(slot_index, request);
  });
}

pid_t start_program(const ChildSetup& setup, const StartRequest& request, std::uint32_t slot_index) {
  const pid_t guardian = getpid();
  ProcessSlot& slot = process_slot(*setup.memory, slot_index);
  const bool is_function = request.kind == StartKind::kExecutedFunction;
  const RankRequest& rank = request.ranks.at(static_cast<std::size_t>(slot.rank));
  const std::map<std::string, std::string> environment = rank_environment(*setup.memory, slot, request);
  if (!is_function) note_world(slot, number_in(environment, "RANK"), number_in(environment, "WORLD_SIZE"));
  Execution execution(is_function ? request.command : rank.command,
                      changed_environment(request.attributes.environment, environment));
  const Credentials credentials = request.attributes.credentials.before_exec(setup.credentials);
  const auto run = [&] {
    end_in_failure(slot, [&](ProcessSlot&) {
      leave_guardian_behind(setup, slot, guardian);
      set_up(setup, request, slot, credentials, guardian);
      execution.run(setup, slot_index, is_function ? BootstrapRole::kFunctionRank : BootstrapRole::kProgramRank);
    });
  };
  // In our memory: nothing in there changes what is the guardian's.
  if (credentials == setup.credentials) return fork_to_execute(run, execution.stack_bytes());
  // Others of the caller's user may look into a process of its credentials, and so into that memory.
  const pid_t pid = fork();
  if (pid == 0) run();
  return pid;
}

}  // namespace retinue
