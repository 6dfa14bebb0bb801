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
#include "os/process_calls.h"
#include "process/crash_handler.h"
#include "process/guardian.h"
#include "process/throw_trace.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

/// Descriptors of an exec'd guardian, at the numbers that its bootstrap names one after the other.
constexpr int kGuardianDescriptors = 2;  // After the control socket to send on: to receive from, then the lifeline.

[[noreturn]] void serve_as_guardian(const std::shared_ptr<JobMemory>& memory, const Bootstrap& bootstrap) {
  GuardianSetup setup;
  setup.memory = memory;
  setup.control_send_fd = bootstrap.control_fd;
  setup.control_receive.reset(fcntl(bootstrap.control_fd + 1, F_DUPFD_CLOEXEC, 3));
  setup.lifeline.reset(fcntl(bootstrap.control_fd + kGuardianDescriptors, F_DUPFD_CLOEXEC, 3));
  close(bootstrap.control_fd + 1);
  close(bootstrap.control_fd + kGuardianDescriptors);
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
  const int fields =
      std::sscanf(text, "%llu,%d,%d,%u,%u", &job_id, &bootstrap.memfd, &bootstrap.control_fd, &bootstrap.slot, &role);
  if (fields != 5 || role > 2 || bootstrap.slot >= kMaxProcesses)
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
  close(bootstrap->memfd);
  fcntl(bootstrap->control_fd, F_SETFD, FD_CLOEXEC);
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
  return true;
}

void Runtime::Impl::execute_guardian(FileDescriptor control_receive, FileDescriptor lifeline_read) {
  // Four descriptors that survive the exec, the last three with consecutive numbers.
  const FileDescriptor memfd(fcntl(memory->memfd(), F_DUPFD, 3));
  int base = 64;
  while (fcntl(base, F_GETFD) >= 0 || fcntl(base + 1, F_GETFD) >= 0 || fcntl(base + 2, F_GETFD) >= 0) ++base;
  const FileDescriptor send(dup2(control_send.get(), base));
  const FileDescriptor receive(dup2(control_receive.get(), base + 1));
  const FileDescriptor read_end(dup2(lifeline_read.get(), base + kGuardianDescriptors));
  if (!memfd || !send || !receive || !read_end) throw SystemError("passing descriptors to the guardian", errno);
  const std::string bootstrap =
      fmt::format("{}={}", kBootstrapVariable,
                  bootstrap_value(*memory, memfd.get(), base, kGuardianSlot, BootstrapRole::kGuardian));
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) environment.push_back(*variable);
  environment.push_back(const_cast<char*>(bootstrap.c_str()));
  environment.push_back(nullptr);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const int lifeline_write = lifeline.get();
  guardian = fork_unnoticed();
  if (guardian != 0) return;
  // Other threads' locks are held for ever here: nothing but system calls until the exec.
  close(lifeline_write);
  execve("/proc/self/exe", argv.data(), environment.data());
  _exit(127);
}

}  // namespace retinue
