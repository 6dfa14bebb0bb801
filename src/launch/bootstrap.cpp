#include "launch/bootstrap.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "ipc/context_table.h"
#include "launch/runtime_impl.h"
#include "os/fault_point.h"
#include "os/process_calls.h"
#include "process/crash_handler.h"
#include "process/guardian.h"
#include "process/throw_trace.h"
#include "retinue/base/error.h"

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
  const int fields = std::sscanf(text, "%llu,%d,%d,%u,%u,%d,%d", &job_id, &bootstrap.memfd, &bootstrap.control_fd,
                                 &bootstrap.slot, &role, &bootstrap.control_receive_fd, &bootstrap.lifeline_fd);
  const bool guards = role == static_cast<unsigned>(BootstrapRole::kGuardian);
  if (fields != (guards ? 7 : 5) || role > 2 || bootstrap.slot >= kMaxProcesses)
    throw UsageError(fmt::format("{} is '{}', which Retinue did not write: unset it", kBootstrapVariable, text));
  bootstrap.job_id = job_id;
  bootstrap.role = static_cast<BootstrapRole>(role);
  unsetenv(kBootstrapVariable);
  return bootstrap;
}

bool Runtime::Impl::join_job() {
  const std::optional<Bootstrap> bootstrap = take_bootstrap();
  if (!bootstrap) return false;
  try {
    memory = JobMemory::attach(bootstrap->memfd);
  } catch (const Error&) {
    // A program that a rank started without passing on its descriptors is no rank.
    if (bootstrap->role == BootstrapRole::kProgramRank) return false;
    throw;
  }
  if (memory->header().job_id != bootstrap->job_id) {
    memory.reset();
    return false;
  }
  JobMemory::set_current(memory);
  close(bootstrap->memfd);
  close_on_exec(bootstrap->control_fd);
  if (bootstrap->role == BootstrapRole::kGuardian) serve_as_guardian(memory, *bootstrap);
  control_send.reset(bootstrap->control_fd);
  ProcessSlot& slot = process_slot(*memory, bootstrap->slot);
  if (bootstrap->role == BootstrapRole::kFunctionRank)
    run_function_rank(bootstrap->slot, load_request(*memory, context_record(*memory, slot.context)));
  ProcessState started = ProcessState::kStarted;
  if (!slot.state.compare_exchange_strong(started, ProcessState::kRunning, std::memory_order_acq_rel)) {
    memory.reset();
    control_send.reset();
    return false;  // Another program of this rank took its place, as the first of a script's two.
  }
  enter_process_slot(*memory, bootstrap->slot);
  install_crash_handlers(slot.crash);
  enable_throw_trace();
  is_rank = true;
  fault_point("rank.start", slot.rank);
  return true;
}

void Runtime::Impl::execute_guardian(FileDescriptor control_receive, FileDescriptor lifeline_read) {
  const std::string bootstrap = fmt::format(
      "{}={},{},{}", kBootstrapVariable,
      bootstrap_value(*memory, memory->memfd(), control_send.get(), kGuardianSlot, BootstrapRole::kGuardian),
      control_receive.get(), lifeline_read.get());
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) environment.push_back(*variable);
  environment.push_back(const_cast<char*>(bootstrap.c_str()));
  environment.push_back(nullptr);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const int passed[] = {memory->memfd(), control_send.get(), control_receive.get(), lifeline_read.get()};
  guardian = fork_unnoticed();
  if (guardian != 0) return;
  // Other threads' locks are held for ever here: nothing but system calls until the exec.
  for (const int fd : passed) fcntl(fd, F_SETFD, 0);
  execve("/proc/self/exe", argv.data(), environment.data());
  _exit(127);
}

}  // namespace retinue
