#include "process/guardian/guardian.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "ipc/memory/job_clock.h"
#include "os/process/process_calls.h"
#include "os/process/scheduling.h"
#include "os/process/spare_descriptors.h"
#include "os/sync/futex.h"
#include "os/testing/fault_point.h"
#include "process/guardian/unretrieved_failure.h"
#include "process/symbols/libdw.h"

namespace retinue {
namespace {

using Clock = GuardedContext::Clock;

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
  child_setup_.memory = setup_.memory;
  child_setup_.control_send_fd = setup_.control_send_fd;
  child_setup_.signal_mask = setup_.signal_mask;
  child_setup_.credentials = Credentials::of_this_thread(ProcessStatus());
  child_setup_.process_name = own_name();
  child_setup_.rank_main = setup_.rank_main;
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
  watcher_.start(*setup_.memory, setup_.program_pidfd.get());
  fault_point("guardian.start");
  request_short_slice();
  raise_descriptor_limit();  // Ranks get their caller's.
  const bool forks_functions = setup_.memory->header().guardian_forks_program != 0;
  job_socket_.open(*setup_.memory, setup_.control_send_fd);
  late_reporter_.open(*setup_.memory);
  heap_is_huge_ = !forks_functions || !HugeHeap::is_worth_a_look();
  setup_.memory->set_lock_patience(kLockPatience);
  enter_process_slot(*setup_.memory, kGuardianSlot);
  setup_.memory->header().guardian_ready.store(1, std::memory_order_release);
  futex_wake_all(setup_.memory->header().guardian_ready);
  child_setup_.guardian_fds = own_fds();
  memory_kills_.rebase();  // While the program, which is about to start something perhaps, does other things.
}

std::vector<int> Guardian::own_fds() const {
  std::vector<int> fds = {setup_.control_receive.get(), setup_.program_pidfd.get(), setup_.lifeline.get(),
                          child_events_.get(), late_reporter_.fd()};
  for (const int fd : job_socket_.fds()) fds.push_back(fd);
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
    update_timer();  // A stop sequence that begins now finds it standing already.
    const auto now = Clock::now();
    for (const auto& context : contexts_) context->on_time(now);
    end_contexts();
    guests_are_reaped_ = job_socket_.reap_guests(*setup_.memory);
    serve_job_socket();
    late_reporter_.serve(*setup_.memory);
    if (!shutting_down_ || !contexts_.empty()) continue;
    fault_point("guardian.shutdown");
    report_unretrieved_failures(*setup_.memory, std::bitset<kMaxProcesses>().set(), std::chrono::milliseconds(0));
    sweep_orphans();
    // Orphans of closures do not come to the guardian. What it cannot see is the program's to look for.
    const bool is_swept = !had_closures_ || sweep_by_marks();
    watcher_.end();
    if (is_swept) setup_.memory->header().swept.store(1, std::memory_order_release);
    _exit(0);
  }
}

void Guardian::wait_for_events() {
  std::vector<pollfd> entries = {{setup_.control_receive.get(), POLLIN, 0},
                                 {child_events_.get(), POLLIN, 0},
                                 {setup_.program_pidfd.get(), POLLIN, 0},
                                 {setup_.lifeline.get(), POLLIN, 0}};
  if (late_reporter_.fd() >= 0) entries.push_back({late_reporter_.fd(), POLLIN, 0});
  for (const int fd : job_socket_.fds()) entries.push_back({fd, POLLIN, 0});
  std::optional<Clock::time_point> next;
  std::vector<std::pair<GuardedContext*, int>> adopted;
  for (const auto& context : contexts_) {
    if (const auto time = context->next_time()) next = next ? std::min(*next, *time) : *time;
    for (const int pidfd : context->adopted_pidfds()) {
      adopted.emplace_back(context.get(), pidfd);
      entries.push_back({pidfd, POLLIN, 0});
    }
  }
  if (!unfreed_.empty() || is_end_held_ || !guests_are_reaped_)
    next = std::min(next.value_or(Clock::time_point::max()), Clock::now() + kRetryTime);
  int timeout = -1;
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
  if (entries[2].revents != 0 || (entries[3].revents & (POLLHUP | POLLERR)) != 0) end_without_program();
  for (std::size_t i = 0; i < adopted.size(); ++i)
    if (entries[fixed + i].revents != 0) adopted[i].first->on_adopted_exit(adopted[i].second);
}

void Guardian::make_forks_cheaper() {
  if (!heap_) heap_.emplace();
  heap_is_huge_ = !heap_->advance();
  if (heap_is_huge_) libdw();  // Each helper of such a program would load it anew.
}

void Guardian::serve_job_socket() {
  if (const DescriptorHeadroom headroom(kLookDescriptors); job_socket_.serve(*setup_.memory)) {
    setup_.memory->header().stop_asked.store(SIGTERM, std::memory_order_release);
    for (const auto& context : contexts_) context->stop(SIGTERM);
  }
  update_timer();
  if (contexts_.empty()) job_socket_.reply_stopped();
}

void Guardian::update_timer() {
  JobHeader& header = setup_.memory->header();
  const auto now = Clock::now();
  const bool stands = job_socket_.has_debugger();
  if (stands && !job_clock_stands(header)) stop_job_clock(header);
  if (!stands && job_clock_stands(header)) resume_job_clock(header);
  for (const auto& context : contexts_) {
    if (stands) {
      context->pause_deadlines(now);  // Every time: a stop sequence may have begun since.
    } else {
      context->resume_deadlines(now);
    }
  }
}

}  // namespace retinue
