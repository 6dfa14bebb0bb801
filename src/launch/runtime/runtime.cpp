#include "retinue/launch/runtime.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <vector>

#include "ipc/memory/context_table.h"
#include "ipc/memory/job_name.h"
#include "launch/runtime/bootstrap.h"
#include "launch/runtime/guest_state.h"
#include "launch/runtime/job_memory_variable.h"
#include "launch/runtime/program_failure.h"
#include "launch/runtime/runtime_impl.h"
#include "os/files/environment.h"
#include "os/machine/memory.h"
#include "os/process/process_calls.h"
#include "os/process/process_stat.h"
#include "os/sockets/control_socket.h"
#include "os/sync/futex.h"
#include "os/testing/fault_point.h"
#include "process/guardian/guardian.h"
#include "process/observe/run_report.h"
#include "retinue/base/deadline.h"
#include "retinue/base/error.h"
#include "retinue/launch/world_place.h"
#include "retinue/os/detail/interrupt.h"
#include "retinue/os/detail/standard_error.h"

namespace retinue {
namespace {

Runtime* current_runtime = nullptr;

constexpr auto kGuardianStart = std::chrono::seconds(60);
constexpr auto kExecutedGuardianStart = std::chrono::minutes(10);  // It may load what it likes first.

/// RETINUE_JOB_NAME, or "program-pid".
std::string name_of_job(const std::vector<std::string>& arguments) {
  if (auto wanted = find_variable("RETINUE_JOB_NAME")) return *std::move(wanted);
  const std::string program = arguments.empty() ? "" : arguments.front();
  return fmt::format("{}-{}", program.substr(program.rfind('/') + 1), getpid());
}

/// The variable is this job's alone: what its ranks execute may make jobs of their own.
std::string report_of(const RuntimeOptions& options) {
  std::string report = options.report.empty() ? find_variable("RETINUE_REPORT").value_or("") : options.report;
  unsetenv("RETINUE_REPORT");
  return report;
}

/// To the end of the process: the main thread's life lock stays in the kernel's robust list, and crash handlers write
/// there.
void keep_mapped(const std::shared_ptr<JobMemory>& memory) {
  static auto* const kept = new std::vector<std::shared_ptr<JobMemory>>;
  kept->push_back(memory);
}

/// A program may be started with some of descriptors 0 to 2 closed. Job memory must not become one of them: the first
/// printf would overwrite it.
void fill_standard_descriptors() {
  int fd = -1;
  while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= 2) continue;
  if (fd > 2) close(fd);
}

}  // namespace

Runtime::Runtime(int argc, char** argv, const RuntimeOptions& options)
    : impl_(std::make_unique<Impl>(argc, argv, options.command)) {
  if (current_runtime != nullptr)
    throw UsageError("this process already has a retinue::Runtime: make only one, in the first line of main");
  if (is_guest())
    throw UsageError(
        "this process is a guest of a job: it cannot make a retinue::Runtime, because a guest cannot have its own job");
  // Set before the job is made: forks of the guardian see the program as it is now, and have this Runtime.
  current_runtime = this;
  fill_standard_descriptors();
  try {
    const bool is_program = !impl_->join_job();
    if (is_program) impl_->make_job(options);
    keep_mapped(impl_->memory);
    fail_exit_after_unretrieved_failures(impl_->memory.get());
  } catch (...) {
    current_runtime = nullptr;
    throw;
  }
}

Runtime::~Runtime() {
  impl_.reset();
  current_runtime = nullptr;
}

Runtime* Runtime::current_or_null() noexcept {
  return current_runtime;
}

Runtime& Runtime::current() {
  if (current_runtime == nullptr)
    throw UsageError("this needs a Runtime: make `retinue::Runtime runtime(argc, argv);` the first line of main");
  return *current_runtime;
}

bool Runtime::is_rank() const noexcept {
  return impl_->is_rank;
}

std::string Runtime::job_id() const {
  impl_->wait_for_guardian();  // The reader of RETINUE_JOB may connect to it at once.
  return job_variable_value(*impl_->memory);
}

std::string Runtime::job_name() const {
  impl_->wait_for_guardian();
  return retinue::job_name(impl_->memory->header());
}

RankContext Runtime::rank_context() const {
  if (!is_rank()) impl_->refuse_other_world();
  return {impl_->memory, impl_->memory->own_slot()};
}

const std::shared_ptr<JobMemory>& Runtime::memory() const noexcept {
  return impl_->memory;
}

std::vector<std::string> Runtime::Impl::command_line() const {
  if (!command.empty()) return command;
  const bool is_run_by_loader = getauxval(AT_BASE) == 0;  // Or it needs none, and its words are the same.
  std::vector<std::string> words;
  std::ifstream line("/proc/self/cmdline", std::ios::binary);
  for (std::string word; is_run_by_loader && std::getline(line, word, '\0');) words.push_back(std::move(word));
  return words.size() > arguments.size() ? words : arguments;
}

/// Of a program that somebody started as one of several ranks each would be alone, and do what one alone should do.
void Runtime::Impl::refuse_other_world() const {
  const WorldPlace place = world_place_of_environment();
  if (place.world_size == 1) return;
  throw UsageError(fmt::format(
      "{} say that this process is rank {} of {}, but it is not a rank of a Retinue job{}{}: call join_world() or "
      "init_process_group() to make a group of these ranks; to run alone, unset these variables",
      place.source, place.rank, place.world_size, why_no_rank.empty() ? "" : "; ", why_no_rank));
}

void Runtime::Impl::make_job(const RuntimeOptions& options) {
  if (!ProcessStatus().is_known())
    throw SystemError("Retinue needs /proc, which isn't mounted here: mount -t proc proc /proc", ENOENT);
  std::fflush(stdout);  // What stands in buffers would be printed again by every rank.
  std::cout.flush();
  memory = JobMemory::create(options.job_memory != 0 ? options.job_memory : job_memory_of_environment());
  JobMemory::set_current(memory);
  JobHeader& header = memory->header();
  header.program = executable_identity();
  header.confinement = Confinement::of_this_thread(ProcessStatus());
  set_job_name(header, name_of_job(arguments));
  if (const std::string report = report_of(options); !report.empty()) ask_for_report(*memory, report);
  enter_process_slot(*memory, kProgramSlot);
  auto [send, receive] = make_control_sockets();
  control_send = std::move(send);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw SystemError("making a pipe to the guardian", errno);
  lifeline.reset(ends[1]);
  FileDescriptor lifeline_read(ends[0]);
  owner = getpid();
  const bool is_single = count_tasks() == 1;
  header.guardian_forks_program = is_single || !command.empty() ? 1 : 0;
  if (header.guardian_forks_program == 0)
    write_standard_error(
        "retinue: this program had several threads when it made its Runtime, so ranks start by a new "
        "execution of the program (kSpawn) and not by fork; make the Runtime in the first line of main\n");
  if (is_single && command.empty())
    fork_guardian(std::move(receive), std::move(lifeline_read));
  else
    execute_guardian(std::move(receive), std::move(lifeline_read));
  try {
    guardian_pidfd = open_pidfd(guardian);
  } catch (...) {
    kill(guardian, SIGKILL);
    waitpid(guardian, nullptr, __WALL);
    guardian = 0;
    throw;
  }
  fault_point("program.runtime");
  spare_descriptors.emplace(kSweepDescriptors);
  report_own_failure(*memory, control_send.get());
}

void Runtime::Impl::fork_guardian(FileDescriptor control_receive, FileDescriptor lifeline_read) {
  GuardianSetup setup;
  setup.memory = memory;
  setup.control_receive = std::move(control_receive);
  setup.control_send_fd = control_send.get();
  setup.program_pidfd = open_pidfd(owner);
  setup.lifeline = std::move(lifeline_read);
  setup.rank_main = &run_function_rank;
  sigprocmask(SIG_SETMASK, nullptr, &setup.signal_mask);
  guardian = fork_unnoticed();
  if (guardian != 0) return;
  lifeline.reset();
  try {
    Guardian(std::move(setup)).run();
  } catch (const std::exception& error) {
    write_standard_error(fmt::format("retinue: the guardian failed: {}\n", error.what()));
  }
  _exit(1);
}

void Runtime::Impl::wait_for_guardian() {
  auto& ready = memory->header().guardian_ready;
  const std::chrono::seconds limit = command.empty() ? kGuardianStart : kExecutedGuardianStart;
  const Deadline deadline = Deadline::after(limit);
  while (ready.load(std::memory_order_acquire) == 0) {
    if (!is_control_socket(control_send.get())) refuse_closed_socket();  // The pidfd is closed, too.
    if (guardian_pidfd && wait_for_exit(guardian_pidfd.get(), std::chrono::milliseconds(0)))
      throw SystemError(command.empty() ? "the guardian ended before it was ready"
                                        : fmt::format("the guardian, executed as '{}' by RuntimeOptions::command, "
                                                      "ended before it had made its Runtime",
                                                      fmt::join(command, " ")),
                        ECHILD);
    if (deadline.passed()) throw TimeoutError(fmt::format("the guardian was not ready within {} s", limit.count()));
    if (detail::is_interrupted()) throw SystemError("waiting for the guardian", EINTR);
    futex_wait(ready, 0, deadline.left(std::chrono::milliseconds(50)));
  }
}

}  // namespace retinue
