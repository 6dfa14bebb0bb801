#include "launch/spawn/start.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "launch/runtime/runtime_impl.h"
#include "launch/spawn/log_options.h"
#include "launch/spawn/new_request.h"
#include "os/files/environment.h"
#include "os/files/kernel_files.h"
#include "os/machine/valgrind.h"
#include "os/process/process_calls.h"
#include "os/sockets/control_socket.h"
#include "os/sync/futex.h"
#include "os/testing/fault_point.h"
#include "process/guardian/start_request.h"
#include "retinue/base/error.h"
#include "retinue/launch/spawn.h"

namespace retinue {
namespace {

void send_to_guardian(const Runtime::Impl& runtime, const ControlMessage& message, const std::vector<int>& fds = {}) {
  send_message(runtime.control_send.get(), &message, sizeof message, fds);
}

/// A daemonic rank may be stopped at any time, without a word to those that it started.
void refuse_children_of_daemons(const JobMemory& memory) {
  const ProcessSlot& own = process_slot(memory, memory.own_slot());
  if (own.context == ProcessSlot::kNoContext || context_record(memory, own.context).daemon == 0) return;
  throw UsageError(
      fmt::format("daemonic processes are not allowed to have children: this process is rank {} of a start with "
                  "`daemon = true`; start these ranks without it, or start the children from the program",
                  own.rank));
}

/// How long the context may need to end once the program has ended. What a rank started ends after that rank.
std::int64_t stop_ms_of(const JobMemory& memory, const StartRequest& request) {
  constexpr std::int64_t kHelpersMs = 30'000;
  const std::int64_t grace_ms = request.daemon != 0 ? 0 : request.exit_grace_ms;
  const std::int64_t own_ms = grace_ms + request.terminate_wait_ms + request.kill_wait_ms;
  const ProcessSlot& caller = process_slot(memory, memory.own_slot());
  if (caller.context == ProcessSlot::kNoContext) return own_ms;
  return own_ms + kHelpersMs + context_record(memory, caller.context).stop_ms;
}

}  // namespace

std::unique_ptr<ProcessContext::Impl> submit(StartRequest& request, const StartOptions& options) {
  Runtime::Impl& runtime = Runtime::current().impl();
  refuse_children_of_daemons(*runtime.memory);
  PreparedLogs logs(options, static_cast<int>(request.ranks.size()));
  request.logs = logs.request();
  runtime.wait_for_guardian();
  auto& longest = runtime.memory->header().longest_stop_ms;
  const std::int64_t stop_ms = stop_ms_of(*runtime.memory, request);
  for (std::int64_t seen = longest.load(); seen < stop_ms && !longest.compare_exchange_weak(seen, stop_ms);) continue;
  const std::uint32_t index = reserve_context(*runtime.memory, static_cast<std::uint32_t>(request.ranks.size()));
  try {
    ContextRecord& record = context_record(*runtime.memory, index);
    record.daemon = request.daemon;
    record.stop_ms = stop_ms;
    for (std::size_t rank = 0; rank < request.ranks.size(); ++rank) {
      ProcessSlot& slot = process_slot(*runtime.memory, record.slots[rank]);
      slot.cpu_share = request.ranks[rank].threads;
      slot.is_process = request.sentinel_fd >= 0 ? 1 : 0;
    }
    store_request(*runtime.memory, record, request);
    fault_point("program.request");
    std::fflush(stdout);  // Before the ranks print: lines appear in the order in which they were written.
    const FileDescriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
    std::vector<int> descriptors = {0, 1, 2};
    for (int& fd : descriptors)
      if (fcntl(fd, F_GETFD) < 0) fd = null.get();  // The program has closed it.
    // By its path it could not be entered where it was removed, nor by a rank that its caller did not wait for.
    const FileDescriptor directory(open("/proc/thread-self/cwd", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!directory) throw SystemError("opening the current directory", errno);
    descriptors.push_back(directory.get());
    if (request.sentinel_fd >= 0) descriptors.push_back(request.sentinel_fd);
    send_to_guardian(runtime, {ControlKind::kStart, index, 0, 0}, descriptors);
    fault_point("program.start");
    logs.keep();
  } catch (...) {
    free_context(*runtime.memory, index);
    throw;
  }
  return std::make_unique<ProcessContext::Impl>(runtime.memory, index, runtime.control_send.get(), request.logs);
}

namespace {

/// Whether the guardian runs the same executable as this process.
bool guardian_is_this_program(const Runtime::Impl& runtime) {
  return executable_identity() == runtime.memory->header().program;
}

/// Whether the guardian can fork functions of this very program.
bool guardian_knows_functions(const Runtime::Impl& runtime) {
  return runtime.memory->header().guardian_forks_program == 1 && guardian_is_this_program(runtime);
}

StartMethod choose_method(const StartOptions& options, const Runtime::Impl& runtime) {
  if (options.start_method == StartMethod::kFork) return StartMethod::kFork;
  refuse_other_confinement(ProcessStatus());  // Where there is another /proc, or none, nothing else can be told.
  const bool can_fork = guardian_knows_functions(runtime);
  if (!options.start_method) return can_fork ? StartMethod::kForkserver : StartMethod::kSpawn;
  if (*options.start_method == StartMethod::kForkserver && !can_fork)
    throw UsageError(
        "StartMethod::kForkserver needs a guardian that was forked from this program while it had one thread; this "
        "program had more threads when it made its Runtime, or another program started it: use kSpawn");
  return *options.start_method;
}

/// OpenMP's idle threads can be ended and come back by themselves; no other thread can.
void pause_openmp() {
  using Pause = int (*)(int);
  const auto pause = reinterpret_cast<Pause>(dlsym(RTLD_DEFAULT, "omp_pause_resource_all"));
  constexpr int kHard = 2;  // omp_pause_hard
  if (pause != nullptr) pause(kHard);
}

bool holds_cuda_device() {
  const auto descriptors = numbers_in_folder("/proc/self/fd").value_or(std::vector<int>());
  return std::any_of(descriptors.begin(), descriptors.end(), [](int fd) {
    return target_of_link(fmt::format("/proc/self/fd/{}", fd)).starts_with("/dev/nvidia");
  });
}

void refuse_unsafe_fork() {
  if (holds_cuda_device())
    throw UsageError(
        "StartMethod::kFork: CUDA is initialised in this process and does not survive a fork; use "
        "kForkserver or kSpawn");
  pause_openmp();
  const int tasks = count_tasks();
  if (tasks > 1)
    throw UsageError(
        fmt::format("StartMethod::kFork: this process has {} other threads, whose locks would stay locked "
                    "for ever in the ranks; end them first, or use kForkserver or kSpawn",
                    tasks - 1));
}

/// In the forked rank: waits until the guardian watches it, so that no death goes unnoticed.
void wait_at_gate(const Runtime::Impl& runtime, std::uint32_t context, const ProcessSlot& slot, pid_t parent) {
  ContextRecord& record = context_record(*runtime.memory, context);
  const ProcessSlot& guardian = process_slot(*runtime.memory, kGuardianSlot);
  for (;;) {
    const std::uint32_t seen = record.changed.load(std::memory_order_acquire);
    if (slot.state.load(std::memory_order_acquire) == ProcessState::kStarted) return;
    const bool has_ended = record.state.load(std::memory_order_acquire) == ContextRecord::kEnded;
    if (getppid() != parent || has_ended || guardian.life.owner_died()) _exit(1);
    futex_wait(record.changed, seen, std::chrono::milliseconds(100));
  }
}

/// Forks one rank that runs `body` as soon as the guardian watches it. Returns its pid, or 0 if it could not be forked.
pid_t fork_closure(const Runtime::Impl& runtime, std::uint32_t index, std::uint32_t rank, const StartRequest& request,
                   const detail::RankBody& body) {
  const ContextRecord& record = context_record(*runtime.memory, index);
  ProcessSlot& slot = process_slot(*runtime.memory, record.slots[rank]);
  const pid_t parent = getpid();
  try {
    runtime.memory->retain_holds_for(record.slots[rank]);
  } catch (const Error&) {
    send_to_guardian(runtime, {ControlKind::kAdopt, index, rank, 0});
    return 0;
  }
  const pid_t pid = fork();
  if (pid == 0) {
    die_with_parent(parent);
    setpgid(0, 0);
    close(runtime.lifeline.get());  // Else the guardian would not notice that the program executes something else.
    if (request.sentinel_fd >= 0) close(request.sentinel_fd);
    fault_point("rank.forked", slot.rank);
    wait_at_gate(runtime, index, slot, parent);
    try {
      set_up_forked_rank(*runtime.memory, slot, request);
    } catch (const SystemError& error) {
      record_failure(slot.crash, "retinue::SystemError", error.what());
      _exit(127);
    }
    run_rank_body(record.slots[rank], body, RankOrigin::kForked);
  }
  if (pid < 0) return 0;
  setpgid(pid, pid);
  slot.pid.store(pid, std::memory_order_relaxed);
  return pid;
}

/// Tells the guardian of a rank that was forked, or with a pid of 0 that it could not be.
void hand_over(const Runtime::Impl& runtime, std::uint32_t index, std::uint32_t rank, pid_t pid) {
  std::vector<int> pidfds;
  FileDescriptor pidfd;
  try {
    if (pid != 0 && !runs_on_valgrind()) pidfd = open_pidfd(pid);
    if (pidfd) pidfds.push_back(pidfd.get());
  } catch (const SystemError&) {
    // Out of descriptors: the guardian opens its own, as it does where valgrind may not know how to.
  }
  send_to_guardian(runtime, {ControlKind::kAdopt, index, rank, pid}, pidfds);
}

/// Archives that are the same for all ranks are there once.
void put_arguments(StartRequest& request, detail::EncodedArguments& arguments) {
  for (const detail::Encoded& archive : arguments.archives)
    request.references.insert(request.references.end(), archive.references.begin(), archive.references.end());
  if (arguments.archives.size() == 1) {
    request.archives = std::move(arguments.archives.front().bytes);
    for (RankRequest& rank : request.ranks) rank.archive = {0, request.archives.size()};
    return;
  }
  for (std::size_t rank = 0; rank < request.ranks.size(); ++rank) {
    request.ranks[rank].archive = {request.archives.size(), arguments.archives[rank].bytes.size()};
    request.archives += arguments.archives[rank].bytes;
  }
}

constexpr int kNoSentinel = -1;

void set_sentinel(StartRequest& request, int sentinel) {
  request.sentinel_fd = sentinel;
  request.tells_failure = sentinel >= 0 ? 1 : 0;
}

ProcessContext launch_closure(const StartOptions& options, int nprocs, const detail::RankBody& body, int sentinel) {
  Runtime::Impl& runtime = Runtime::current().impl();
  StartRequest request = new_request(options, StartKind::kClosure, static_cast<std::size_t>(nprocs));
  set_sentinel(request, sentinel);
  refuse_unsafe_fork();
  std::unique_ptr<ProcessContext::Impl> context = submit(request, options);
  std::cout.flush();
  const std::uint32_t index = context->index();
  const ContextRecord& record = context_record(*runtime.memory, index);
  for (std::uint32_t rank = 0; rank < record.nprocs; ++rank) {
    const pid_t pid = fork_closure(runtime, index, rank, request, body);
    context->add_own_child(rank, pid);  // Before the guardian, which may be gone, hears of it.
    fault_point("program.fork", static_cast<int>(rank));
    try {
      hand_over(runtime, index, rank, pid);
    } catch (const Closed&) {
      context->fail_without_guardian();
    }
  }
  context->fail_if_guardian_is_dead();  // It may have died with messages in its socket.
  return ProcessContext(std::move(context));
}

ProcessContext launch_function(const StartOptions& options, const detail::EntryKey& entry,
                               detail::EncodedArguments& arguments, int sentinel) {
  const Runtime::Impl& runtime = Runtime::current().impl();
  const StartMethod method = choose_method(options, runtime);
  if (method == StartMethod::kFork) {
    const detail::EntryThunk thunk = detail::find_entry(entry);
    return launch_closure(
        options, arguments.nprocs,
        [thunk, &arguments](RankContext& context) { return thunk(context, arguments.of(context.rank()).bytes); },
        sentinel);
  }
  StartRequest request =
      new_request(options, method == StartMethod::kSpawn ? StartKind::kExecutedFunction : StartKind::kForkedFunction,
                  static_cast<std::size_t>(arguments.nprocs));
  set_sentinel(request, sentinel);
  request.entry = detail::encode_value(entry).bytes;
  // By the guardian's own executable where it is the same: the path may lead to a newer build by now.
  if (method == StartMethod::kSpawn)
    request.command = {guardian_is_this_program(runtime) ? "/proc/self/exe" : executable_path(),
                       runtime.command_line()};
  put_arguments(request, arguments);
  return ProcessContext(submit(request, options));
}

}  // namespace

namespace detail {

StartOptions start_options_of(const SpawnOptions& options) {
  return {.name = "rank",
          .start_method = options.start_method,
          .daemon = options.daemon,
          .stop = options.stop,
          .exit_grace = options.exit_grace,
          .environment = options.environment,
          .directory = options.directory,
          .threads_per_rank = options.threads_per_rank,
          .cpu_affinity = options.cpu_affinity,
          .memory_nodes = options.memory_nodes,
          .trace_dir = options.trace_dir};
}

const Encoded& EncodedArguments::of(int rank) const {
  return archives.size() == 1 ? archives.front() : archives.at(static_cast<std::size_t>(rank));
}

void EncodedArguments::take_back() noexcept {
  for (Encoded& archive : archives) detail::take_back(archive);
}

ProcessContext start_function(const StartOptions& options, const EntryKey& entry, EncodedArguments arguments) {
  try {
    return launch_function(options, entry, arguments, kNoSentinel);
  } catch (...) {
    arguments.take_back();
    throw;
  }
}

ProcessContext start_closure(const StartOptions& options, int nprocs, const RankBody& body) {
  return launch_closure(options, nprocs, body, kNoSentinel);
}

}  // namespace detail

ProcessContext start_one(const StartOptions& options, const detail::EntryKey& entry, const detail::Encoded& arguments,
                         int sentinel) {
  detail::EncodedArguments of_one{1, {arguments}};
  return launch_function(options, entry, of_one, sentinel);
}

}  // namespace retinue
