#include "launch/runtime/bootstrap.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "ipc/memory/context_table.h"
#include "ipc/memory/other_version.h"
#include "launch/runtime/runtime_impl.h"
#include "os/process/process_calls.h"
#include "os/sockets/control_socket.h"
#include "os/testing/fault_point.h"
#include "process/crash/crash_handler.h"
#include "process/crash/throw_trace.h"
#include "process/guardian/guardian.h"
#include "process/observe/found_job.h"
#include "retinue/base/error.h"
#include "retinue/os/detail/standard_error.h"

namespace retinue {
namespace {

void close_on_exec(int fd) {
  fcntl(fd, F_SETFD, FD_CLOEXEC);
}

[[noreturn]] void serve_as_guardian(const std::shared_ptr<JobMemory>& memory, const Bootstrap& bootstrap) {
  GuardianSetup setup;
  setup.memory = memory;
  setup.control_send_fd = bootstrap.control_fd;
  setup.control_receive.reset(bootstrap.control_receive_fd);
  setup.lifeline.reset(bootstrap.lifeline_fd);
  close_on_exec(bootstrap.control_receive_fd);
  close_on_exec(bootstrap.lifeline_fd);
  setup.program_pidfd = open_pidfd(getppid());
  setup.rank_main = &run_function_rank;
  sigprocmask(SIG_SETMASK, nullptr, &setup.signal_mask);
  Guardian(std::move(setup)).run();
}

}  // namespace

std::optional<Bootstrap> take_bootstrap() {
  const char* text = std::getenv(kBootstrapVariable);
  if (text == nullptr) return std::nullopt;
  Bootstrap bootstrap;
  unsigned long long job_id = 0;
  unsigned role = 0;
  const int fields = std::sscanf(text, "%llu,%d,%d,%u,%u,%u,%d,%d,%d", &job_id, &bootstrap.memfd, &bootstrap.control_fd,
                                 &bootstrap.slot, &role, &bootstrap.context_id, &bootstrap.pid,
                                 &bootstrap.control_receive_fd, &bootstrap.lifeline_fd);
  const bool guards = role == static_cast<unsigned>(BootstrapRole::kGuardian);
  if (fields != (guards ? 9 : 7) || role > 2 || bootstrap.slot >= kMaxProcesses)
    throw UsageError(fmt::format("{} is '{}', which Retinue did not write: unset it", kBootstrapVariable, text));
  bootstrap.job_id = job_id;
  bootstrap.role = static_cast<BootstrapRole>(role);
  unsetenv(kBootstrapVariable);
  if (bootstrap.pid != 0 && bootstrap.pid != getpid()) return std::nullopt;
  return bootstrap;
}

namespace {

/// By the descriptors that the variable names. None: a launcher between has closed them.
std::optional<RankDescriptors> inherited_descriptors(const Bootstrap& bootstrap) {
  try {
    std::shared_ptr<JobMemory> memory = JobMemory::attach(bootstrap.memfd);
    if (memory->header().job_id != bootstrap.job_id || !is_control_socket(bootstrap.control_fd)) return std::nullopt;
    close(bootstrap.memfd);
    close_on_exec(bootstrap.control_fd);
    return RankDescriptors{std::move(memory), FileDescriptor(bootstrap.control_fd)};
  } catch (const OtherVersion&) {
    throw;
  } catch (const Error&) {
    if (bootstrap.role != BootstrapRole::kProgramRank) throw;
    return std::nullopt;
  }
}

/// Makes this process the program of the rank's slot. Errors: Error, which says why it can't be.
void become_rank(JobMemory& memory, const Bootstrap& bootstrap) {
  ProcessSlot& slot = process_slot(memory, bootstrap.slot);
  const std::uint32_t context = slot.context;
  if (context >= kMaxContexts || context_record(memory, context).id != bootstrap.context_id)
    throw Error("the rank of this process has ended");
  ProcessState state = ProcessState::kStarted;
  if (slot.state.compare_exchange_strong(state, ProcessState::kRunning, std::memory_order_acq_rel))
    return enter_process_slot(memory, bootstrap.slot);
  const pid_t pid = slot.pid.load(std::memory_order_relaxed);
  if (state != ProcessState::kRunning || !take_over_process_slot(memory, bootstrap.slot))
    throw Error(fmt::format("process {} is this rank already", pid));
}

/// Somebody between the launcher and this program may have written other numbers into the environment.
void warn_of_other_world(const JobMemory& memory, const ProcessSlot& slot) {
  const ContextRecord& record = context_record(memory, slot.context);
  const std::map<std::string, std::string> given = rank_environment(memory, slot, load_request(memory, record));
  std::string others;
  for (const char* name : {"RANK", "WORLD_SIZE"}) {
    const char* const now = std::getenv(name);
    if (now == nullptr || now == given.at(name)) continue;
    others += fmt::format("{}{} is {}, but was {}", others.empty() ? "" : ", ", name, now, given.at(name));
  }
  if (others.empty()) return;
  write_standard_error(fmt::format(
      "retinue: the environment differs from what the launcher set: {}. rank_context() and join_world() still "
      "use rank {} of {} of the job\n",
      others, slot.rank, record.nprocs));
}

/// A program that is to be one of its own has neither.
bool environment_gives_rank() {
  return std::getenv("RANK") != nullptr || std::getenv("WORLD_SIZE") != nullptr;
}

}  // namespace

bool Runtime::Impl::join_job() {
  const std::optional<Bootstrap> bootstrap = take_bootstrap();
  if (!bootstrap) return false;
  try {
    auto descriptors = inherited_descriptors(*bootstrap);
    if (bootstrap->role == BootstrapRole::kProgramRank && !environment_gives_rank()) return false;
    if (!descriptors) descriptors = ask_for_rank_descriptors(bootstrap->job_id);
    memory = std::move(descriptors->memory);
    control_send = std::move(descriptors->control_send);
    JobMemory::set_current(memory);
    if (bootstrap->role == BootstrapRole::kGuardian) serve_as_guardian(memory, *bootstrap);
    if (bootstrap->role == BootstrapRole::kFunctionRank)
      run_function_rank(bootstrap->slot,
                        load_request(*memory, context_record(*memory, process_slot(*memory, bootstrap->slot).context)));
    become_rank(*memory, *bootstrap);
  } catch (const OtherVersion&) {
    // Without the job's memory nobody would learn how this rank fails. A program of its own is none of the job.
    if (bootstrap->role != BootstrapRole::kProgramRank || environment_gives_rank()) throw;
    return false;
  } catch (const Error& error) {
    if (bootstrap->role != BootstrapRole::kProgramRank) throw;
    why_no_rank = fmt::format("joining job {:016x} failed: {}", bootstrap->job_id, error.what());
    memory.reset();
    control_send.reset();
    return false;
  }
  ProcessSlot& slot = process_slot(*memory, bootstrap->slot);
  warn_of_other_world(*memory, slot);
  install_crash_handlers(slot.crash);
  enable_throw_trace();
  is_rank = true;
  fault_point("rank.start", slot.rank);
  return true;
}

void Runtime::Impl::execute_guardian(FileDescriptor control_receive, FileDescriptor lifeline_read) {
  constexpr pid_t kUnknownPid = 2'000'000'000;  // More digits than a pid has: it is put there when there is one.
  std::string bootstrap = fmt::format("{}={},{},{}", kBootstrapVariable,
                                      bootstrap_value(*memory, memory->memfd(), control_send.get(), kGuardianSlot,
                                                      BootstrapRole::kGuardian, kUnknownPid),
                                      control_receive.get(), lifeline_read.get());
  const std::size_t digits = std::to_string(kUnknownPid).size();
  char* const last_digit = bootstrap.data() + bootstrap.find(std::to_string(kUnknownPid)) + digits - 1;
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) environment.push_back(*variable);
  environment.push_back(const_cast<char*>(bootstrap.c_str()));
  environment.push_back(nullptr);
  std::vector<char*> argv;
  const std::vector<std::string> words = command_line();
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const int passed[] = {memory->memfd(), control_send.get(), control_receive.get(), lifeline_read.get()};
  guardian = fork_unnoticed();
  if (guardian != 0) return;
  // Other threads' locks are held for ever here: nothing but system calls until the exec.
  setpgid(0, 0);  // Ctrl-C is left to the program, also while what is executed has not made its Runtime.
  for (const int fd : passed) fcntl(fd, F_SETFD, 0);
  pid_t rest = getpid();
  for (std::size_t i = 0; i < digits; ++i, rest /= 10) *(last_digit - i) = static_cast<char>('0' + rest % 10);
  execve("/proc/self/exe", argv.data(), environment.data());
  _exit(127);
}

}  // namespace retinue
