#include "process/guardian.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>

#include "os/control_socket.h"
#include "os/fault_point.h"
#include "os/futex.h"
#include "os/process_calls.h"
#include "process/job_sweep.h"
#include "process/libdw.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

using Clock = GuardedContext::Clock;

constexpr auto kSweepTime = std::chrono::seconds(10);
/// A stopped process may hold the block table: the guardian has better to do than to wait for it.
constexpr auto kLockPatience = std::chrono::milliseconds(20);
constexpr auto kRetryTime = std::chrono::milliseconds(200);

int child_event_fd = -1;

/// A handler, not a signalfd: in a guardian that was executed anew, a thread of the program's own may be given SIGCHLD.
void on_child_event(int) {
  const int error = errno;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(child_event_fd, &one, sizeof one);
  errno = error;
}

std::string own_name() {
  char name[17] = {};
  prctl(PR_GET_NAME, name);
  return name;
}

}  // namespace

Guardian::Guardian(GuardianSetup setup) : setup_(std::move(setup)) {
  birth_.memory = setup_.memory;
  birth_.control_send_fd = setup_.control_send_fd;
  birth_.signal_mask = setup_.signal_mask;
  birth_.process_name = own_name();
  birth_.rank_main = setup_.rank_main;
}

void Guardian::prepare_process() {
  // Signals meant for the program's group are the program's business; ours come through descriptors.
  sigset_t all;
  sigfillset(&all);
  sigdelset(&all, SIGCHLD);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  child_events_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  child_event_fd = child_events_.get();
  struct sigaction action {};
  action.sa_handler = on_child_event;
  action.sa_flags = SA_RESTART;
  sigaction(SIGCHLD, &action, nullptr);
  prctl(PR_SET_NAME, "retinue-guard");
  setpgid(0, 0);
  become_subreaper();
  fault_point("guardian.start");
  request_short_slice();
  raise_descriptor_limit();  // Ranks get their requester's.
  const bool forks_functions = setup_.memory->header().guardian_forks_program != 0;
  door_.open(*setup_.memory);
  heap_is_huge_ = !forks_functions || !HugeHeap::is_worth_a_look();
  setup_.memory->set_lock_patience(kLockPatience);
  enter_process_slot(*setup_.memory, kGuardianSlot);
  setup_.memory->header().guardian_ready.store(1, std::memory_order_release);
  futex_wake_all(setup_.memory->header().guardian_ready);
  birth_.guardian_fds = own_fds();
}

std::vector<int> Guardian::own_fds() const {
  std::vector<int> fds = {setup_.control_receive.get(), setup_.program_pidfd.get(), setup_.lifeline.get(),
                          child_events_.get()};
  for (const int fd : door_.fds()) fds.push_back(fd);
  for (const auto& context : contexts_)
    for (const auto& some : {context->adopted_pidfds(), context->log_fds(), context->own_fds()})
      fds.insert(fds.end(), some.begin(), some.end());
  std::erase(fds, -1);
  return fds;
}

void Guardian::run() {
  prepare_process();
  for (;;) {
    wait_for_events();
    receive_requests();
    reap();
    keep_clock();  // A ladder that begins now finds it standing already.
    const auto now = Clock::now();
    for (const auto& context : contexts_) context->on_time(now);
    end_contexts();
    serve_door();
    if (!shutting_down_ || !contexts_.empty()) continue;
    fault_point("guardian.shutdown");
    sweep_orphans();
    if (had_closures_) sweep_job(*setup_.memory);  // Their orphans do not come to the guardian.
    setup_.memory->header().swept.store(1, std::memory_order_release);
    _exit(0);
  }
}

void Guardian::wait_for_events() {
  std::vector<pollfd> entries = {{setup_.control_receive.get(), POLLIN, 0},
                                 {child_events_.get(), POLLIN, 0},
                                 {setup_.program_pidfd.get(), POLLIN, 0},
                                 {setup_.lifeline.get(), POLLIN, 0}};
  door_.add_entries(entries);
  std::optional<Clock::time_point> next;
  std::vector<std::pair<GuardedContext*, int>> adopted;
  for (const auto& context : contexts_) {
    if (const auto time = context->next_time()) next = next ? std::min(*next, *time) : *time;
    for (const int pidfd : context->adopted_pidfds()) {
      adopted.emplace_back(context.get(), pidfd);
      entries.push_back({pidfd, POLLIN, 0});
    }
  }
  int timeout = unfreed_.empty() ? -1 : static_cast<int>(kRetryTime / std::chrono::milliseconds(1));
  if (next) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*next - Clock::now()).count() + 1;
    timeout = static_cast<int>(std::clamp<long>(left, 0, INT_MAX));
  }
  const std::size_t fixed = entries.size() - adopted.size();
  int ready = 0;
  while (contexts_.empty() && !heap_is_huge_ && (ready = poll(entries.data(), entries.size(), 0)) == 0)
    make_forks_cheaper();
  if (ready == 0) ready = poll(entries.data(), entries.size(), timeout);
  if (ready <= 0) return;
  if (entries[2].revents != 0 || (entries[3].revents & (POLLHUP | POLLERR)) != 0) abandon_ship();
  for (std::size_t i = 0; i < adopted.size(); ++i)
    if (entries[fixed + i].revents != 0) adopted[i].first->on_adopted_exit(adopted[i].second);
}

void Guardian::make_forks_cheaper() {
  if (!heap_) heap_.emplace();
  heap_is_huge_ = !heap_->advance();
  if (heap_is_huge_) libdw();  // Each clerk of such a program would load it anew.
}

void Guardian::receive_requests() {
  for (;;) {
    ControlMessage message{};
    std::vector<FileDescriptor> descriptors;
    const std::size_t bytes = receive_message(setup_.control_receive.get(), &message, sizeof message, descriptors);
    if (bytes == 0) return;
    if (bytes != sizeof message) continue;
    try {
      obey(message, descriptors);
    } catch (const std::exception& error) {
      // One bad request must not take the job along.
      std::fprintf(stderr, "retinue: the guardian could not serve a request: %s\n", error.what());
      if (message.context < kMaxContexts) refuse(message.context, error.what());
    }
  }
}

GuardedContext* Guardian::find(std::uint32_t index) {
  const auto found = std::find_if(contexts_.begin(), contexts_.end(),
                                  [index](const auto& context) { return context->index() == index; });
  return found == contexts_.end() ? nullptr : found->get();
}

void Guardian::obey(const ControlMessage& message, std::vector<FileDescriptor>& descriptors) {
  GuardedContext* context = find(message.context);
  switch (message.kind) {
    case ControlKind::kStart:
      if (context == nullptr && message.context < kMaxContexts) begin(message, descriptors);
      break;
    case ControlKind::kAdopt:
      if (context != nullptr) adopt(*context, message, descriptors);
      break;
    case ControlKind::kStop:
      if (context != nullptr) context->stop(message.pid != 0 ? message.pid : SIGTERM);
      break;
    case ControlKind::kSignal:
      if (context != nullptr) context->send_signal(message.pid, message.rank);
      break;
    case ControlKind::kShutdown:
      shutting_down_ = true;
      for (const auto& each : contexts_) end_with_program(*each, message.rank);
      break;
    case ControlKind::kProgramFailed:
      program_report_.begin(process_slot(*setup_.memory, kProgramSlot).crash);
      break;
  }
}

/// What ranks started ends with those ranks, which may need it until then.
void Guardian::end_with_program(GuardedContext& context, std::uint32_t how) {
  if (how == kAtOnce) context.stop();
  if (context.parent_slot() == kProgramSlot) context.let_finish();
}

void Guardian::adopt(GuardedContext& context, const ControlMessage& message, std::vector<FileDescriptor>& descriptors) {
  FileDescriptor pidfd;
  if (message.pid > 0) {
    // The descriptor is lost where it exceeds a limit on the way.
    try {
      pidfd = descriptors.empty() ? open_pidfd(message.pid) : std::move(descriptors[0]);
    } catch (const SystemError&) {
      kill(message.pid, SIGKILL);
    }
  }
  const pid_t pid = pidfd ? message.pid : 0;
  context.adopt(message.rank, pid, std::move(pidfd));
}

/// Ends a context that could not even begin: its ranks failed, all with the same message.
void Guardian::refuse(std::uint32_t index, const char* reason) {
  if (find(index) != nullptr) return;
  ContextRecord& record = context_record(*setup_.memory, index);
  for (std::uint32_t rank = 0; rank < record.nprocs; ++rank) {
    ProcessSlot& slot = process_slot(*setup_.memory, record.slots[rank]);
    record_failure(slot.crash, "retinue::Error", reason);
    slot.exit_status.store(127 << 8, std::memory_order_relaxed);
    slot.state.store(ProcessState::kDead, std::memory_order_release);
  }
  record.state.store(ContextRecord::kEnded, std::memory_order_seq_cst);
  notify_context(record);
}

void Guardian::begin(const ControlMessage& message, std::vector<FileDescriptor>& descriptors) {
  if (descriptors.empty())
    throw SystemError("the guardian has no descriptors left to take the caller's (raise ulimit -n)", EMFILE);
  const std::uint32_t parent = context_record(*setup_.memory, message.context).parent_slot;
  if (process_slot(*setup_.memory, parent).state.load(std::memory_order_acquire) == ProcessState::kDead) {
    unfreed_.push_back(message.context);  // Its requester died meanwhile, and nobody waits for it.
    return;
  }
  if (setup_.memory->header().stop_asked.load(std::memory_order_relaxed) != 0)
    return refuse(message.context, "the job is being stopped (by `retinue stop`): it starts no ranks any more");
  const bool is_first = contexts_.empty();
  contexts_.push_back(std::make_unique<GuardedContext>(setup_.memory, message.context, memory_kills_));
  GuardedContext& context = *contexts_.back();
  context.tie(descriptors);
  context.start_logs(descriptors);
  // A requester that forks its ranks itself tells about them one by one.
  if (context.kind() == StartKind::kClosure) {
    had_closures_ = true;
    if (is_first) memory_kills_.rebase();
    return;
  }
  birth_.standard = std::move(descriptors);
  birth_.guardian_fds = own_fds();
  context.start(birth_);
  if (is_first) memory_kills_.rebase();  // Its ranks run already, and have not had time to fill the memory.
  birth_.standard.clear();
  if (shutting_down_) end_with_program(context, kAllRanks);
}

void Guardian::reap() {
  std::uint64_t drained = 0;
  while (read(child_events_.get(), &drained, sizeof drained) > 0) continue;
  for (;;) {
    // Looked at before it is reaped: as long as it is a zombie its process group id cannot be another's.
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) != 0 || info.si_pid == 0) return;
    const pid_t pid = info.si_pid;
    const bool is_ours =
        std::any_of(contexts_.begin(), contexts_.end(), [pid](const auto& each) { return each->owns(pid); });
    if (is_ours) kill(-pid, SIGKILL);
    int status = 0;
    rusage usage{};
    if (wait4(pid, &status, __WALL, &usage) != pid) continue;
    if (program_report_.owns(pid)) program_report_.on_exit();
    for (const auto& context : contexts_) {
      if (!context->owns(pid)) continue;
      context->on_exit(pid, status, use_of(usage));
      break;
    }
  }
}

void Guardian::end_contexts() {
  stop_contexts_of_dead_parents();
  const bool last = std::all_of(contexts_.begin(), contexts_.end(), [](const auto& each) { return each->is_done(); });
  // Orphans cannot be told apart by context; while another one runs they may be its own.
  if (last && !contexts_.empty()) sweep_orphans();
  // A context whose ranks started others ends after those.
  const auto is_finished = [this](const std::unique_ptr<GuardedContext>& context) {
    return context->is_done() && std::none_of(contexts_.begin(), contexts_.end(), [&](const auto& other) {
             return context->has_member(other->parent_slot());
           });
  };
  for (;;) {
    const auto found = std::find_if(contexts_.begin(), contexts_.end(), is_finished);
    if (found == contexts_.end()) break;
    const std::uint32_t index = (*found)->index();
    (*found)->publish_end();
    contexts_.erase(found);
    if (claim_abandoned(context_record(*setup_.memory, index))) unfreed_.push_back(index);
    free_ended_contexts();  // Before the next end is told: who hears of it finds nothing left.
  }
  if (!unfreed_.empty()) free_ended_contexts();
}

void Guardian::free_ended_contexts() {
  std::vector<std::uint32_t> later;
  for (const std::uint32_t index : unfreed_) {
    try {
      free_context(*setup_.memory, index);
    } catch (const TimeoutError&) {
      later.push_back(index);
    }
  }
  unfreed_ = std::move(later);
}

void Guardian::stop_contexts_of_dead_parents() {
  for (const auto& context : contexts_) {
    const ProcessSlot& parent = process_slot(*setup_.memory, context->parent_slot());
    if (parent.state.load(std::memory_order_acquire) != ProcessState::kDead) continue;
    context_record(*setup_.memory, context->index()).abandoned.store(1, std::memory_order_seq_cst);
    context->stop();
  }
}

/// Kills what dead ranks left behind, again and again, since the dying may still fork.
void Guardian::sweep_orphans() {
  const auto end = Clock::now() + kSweepTime;
  for (;;) {
    bool any = false;
    for (const pid_t pid : children_of_self()) {
      if (std::any_of(contexts_.begin(), contexts_.end(), [pid](const auto& each) { return each->owns(pid); }))
        continue;
      if (program_report_.owns(pid)) continue;
      any = true;
      kill(pid, SIGKILL);
    }
    if (!any || Clock::now() >= end) return;
    pollfd entry{child_events_.get(), POLLIN, 0};
    poll(&entry, 1, 100);
    reap();
  }
}

}  // namespace retinue
