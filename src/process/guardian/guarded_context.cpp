#include "process/guardian/guarded_context.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ipc/memory/poller.h"
#include "os/process/process_calls.h"
#include "os/process/process_stat.h"
#include "os/sync/clock.h"
#include "os/testing/fault_point.h"
#include "process/failure/failure_text.h"
#include "process/guardian/child_setup.h"

namespace retinue {
namespace {

constexpr std::size_t kRequestDescriptors = 4;  // 0, 1, 2 and the directory of the caller.
/// Also for ranks that shall not keep the program's end waiting: destructors of large libraries take some time.
constexpr auto kLeastTimeToExit = std::chrono::seconds(1);

bool ended_well(int status) {
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

GuardedContext::GuardedContext(std::shared_ptr<JobMemory> memory, std::uint32_t index, MemoryKills& memory_kills,
                               const Credentials& guardian)
    : memory_(std::move(memory)),
      index_(index),
      memory_kills_(memory_kills),
      guardian_(guardian),
      request_(load_request(*memory_, record())) {
  if (request_.tells_failure != 0) record().retrieved.store(1, std::memory_order_relaxed);
  for (std::uint32_t rank = 0; rank < record().nprocs; ++rank) {
    Member member;
    member.slot = record().slots[rank];
    member.error_file = error_file_of(request_, rank);
    member.error_file_before = stamp_of_file(member.error_file);
    members_.push_back(std::move(member));
  }
}

void GuardedContext::start_logs(const std::vector<FileDescriptor>& standard) {
  if (!request_.logs.directory.empty())
    logs_ = std::make_unique<LogForwarder>(request_.logs, standard, caller_rights());
}

void GuardedContext::start(const ChildSetup& setup) {
  const pid_t guardian = getpid();
  for (Member& member : members_) {
    ProcessSlot& slot = process_slot(*memory_, member.slot);
    slot.started_ns.store(monotonic_ns(), std::memory_order_relaxed);
    slot.state.store(ProcessState::kStarted, std::memory_order_release);
    fault_point("guardian.fork", slot.rank);
    const bool is_fork = request_.kind == StartKind::kForkedFunction;
    const pid_t pid = is_fork ? fork() : start_program(setup, request_, member.slot);
    if (pid == 0) run_child(setup, request_, member.slot, guardian);
    if (pid < 0) {
      note_failed_fork(member, std::string("forking the rank: ") + strerrordesc_np(errno));
      continue;
    }
    setpgid(pid, pid);  // The child does the same: whoever comes first, the group exists from here on.
    member.pid = pid;
    std::int32_t unset = 0;  // A program below it may be there already.
    slot.pid.compare_exchange_strong(unset, pid, std::memory_order_relaxed);
    if (phase_ != Phase::kRunning) step_ladder(member, SIGTERM);  // One before it could not be forked.
  }
  request_.ranks.clear();  // Arguments may be large, and only the ranks need them.
  request_.ranks.shrink_to_fit();
  record().state.store(ContextRecord::kRunning, std::memory_order_release);
  notify_context(record());
  after_end();
}

void GuardedContext::note_failed_fork(Member& member, const std::string& reason) {
  ProcessSlot& slot = process_slot(*memory_, member.slot);
  record_failure(slot.crash, "retinue::SystemError", reason.c_str());
  slot.exit_status.store(127 << 8, std::memory_order_relaxed);
  slot.ended_ns.store(monotonic_ns(), std::memory_order_relaxed);
  slot.state.store(ProcessState::kDead, std::memory_order_release);
  member.ended = true;
  stop();
}

void GuardedContext::refuse(const char* reason) {
  for (Member& member : members_)
    if (member.pid == 0 && !member.ended) note_failed_fork(member, reason);
  record().state.store(ContextRecord::kRunning, std::memory_order_release);  // Who waits for its start need not.
  notify_context(record());
  after_end();
}

bool GuardedContext::owns(pid_t pid) const {
  return pid == helper_ || owns_log_forwarder(pid) ||
         std::any_of(members_.begin(), members_.end(),
                     [pid](const Member& member) { return member.pid == pid && !member.ended && !member.pidfd; });
}

void GuardedContext::on_exit(pid_t pid, int status, const ProcessUse& use) {
  if (owns_log_forwarder(pid)) return logs_->on_exit(status);
  if (pid == helper_) {
    on_helper_exit(status);
    return;
  }
  for (Member& member : members_)
    if (member.pid == pid && !member.ended) note_end(member, status, use);
  after_end();
}

/// The stop sequence's own SIGKILL needs no explanation.
void GuardedContext::detect_memory_kill(const Member& member, int status) const {
  ProcessSlot& slot = process_slot(*memory_, member.slot);
  if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) return;
  if (slot.stop_signal.load(std::memory_order_relaxed) == SIGKILL) return;
  const auto kill = memory_kills_.explain(member.pid, slot.started_ns.load(std::memory_order_relaxed));
  if (!kill) return;
  slot.killed_for_memory = 1;
  slot.full_cgroup_limit_bytes = kill->limit_bytes;
}

void GuardedContext::note_end(Member& member, int status, const ProcessUse& use) {
  fault_point("guardian.reap");
  ProcessSlot& slot = process_slot(*memory_, member.slot);
  const ProcessState before = slot.state.load(std::memory_order_acquire);
  if (request_.kind == StartKind::kExecutedFunction && before == ProcessState::kStarted && ended_well(status))
    record_failure(slot.crash, "retinue::UsageError",
                   "the program ended before it made a Runtime: `retinue::Runtime runtime(argc, argv);` must be the "
                   "first line of main");
  signal_group(member, SIGKILL);  // What the rank left in its process group.
  // It had ended by itself; that the stop sequence met it on its way out changes nothing.
  const bool was_leaving = before == ProcessState::kFinished && WIFSIGNALED(status);
  if (was_leaving && WTERMSIG(status) == member.stop_signal) status = slot.exit_status.load(std::memory_order_relaxed);
  slot.exit_status.store(status, std::memory_order_relaxed);
  slot.use = use;
  detect_memory_kill(member, status);
  const bool crashed = slot.crash.phase.load(std::memory_order_acquire) == 2;
  std::uint64_t unset = 0;
  slot.ended_ns.compare_exchange_strong(unset, crashed ? slot.crash.time_ns : monotonic_ns());
  slot.state.store(ProcessState::kDead, std::memory_order_release);
  ring_all_pollers(*memory_);
  member.ended = true;
  if (is_failure(outcome_of(slot))) stop();  // By the rule by which join() reports it.
  notify_context(record());
}

void GuardedContext::signal_group(const Member& member, int signal) const {
  if (member.pid <= 0) return;
  kill(-member.pid, signal);
  if (!member.ended && getpgid(member.pid) != member.pid) kill(member.pid, signal);  // It left its group.
}

void GuardedContext::send_signal(int signal, std::uint32_t rank) const {
  fault_point("guardian.signal");
  for (std::size_t i = 0; i < members_.size(); ++i)
    if (!members_[i].ended && (rank == kAllRanks || rank == i)) signal_group(members_[i], signal);
}

void GuardedContext::step_ladder(Member& member, int signal) const {
  member.stop_signal = signal;
  ProcessSlot& slot = process_slot(*memory_, member.slot);
  // One that is dying already, which may take long for a large process, ends by what it is dying of.
  if (slot.is_alive()) {
    std::uint64_t unset = 0;
    slot.stopped_ns.compare_exchange_strong(unset, monotonic_ns(), std::memory_order_relaxed);
    slot.stop_signal.store(signal, std::memory_order_relaxed);
  }
  if (signal == SIGKILL && fault_skips("guardian.kill", slot.rank)) return;
  signal_group(member, signal);
}

void GuardedContext::abandon(Member& member) {
  process_slot(*memory_, member.slot).abandoned_in = process_stat(member.pid).value_or(ProcessStat()).state;
  note_end(member, SIGKILL, {});
  has_abandoned_ = true;
}

void GuardedContext::kill_all(Clock::time_point now) {
  phase_ = Phase::kKilling;
  deadline_ = now + std::chrono::milliseconds(request_.kill_wait_ms);
  for (Member& member : members_)
    if (!member.ended && member.pid != 0) step_ladder(member, SIGKILL);
}

void GuardedContext::begin_shutdown() {
  if (phase_ != Phase::kRunning) return;
  deadline_ = Clock::now() + std::chrono::milliseconds(request_.daemon != 0 ? 0 : request_.exit_grace_ms);
  on_time(Clock::now());
}

void GuardedContext::stop(int first_signal) {
  if (first_signal == SIGKILL && (phase_ == Phase::kRunning || phase_ == Phase::kTerminating))
    return kill_all(Clock::now());
  if (phase_ != Phase::kRunning) return;
  phase_ = Phase::kTerminating;
  for (Member& member : members_) {
    if (member.ended || member.pid == 0) continue;
    signal_group(member, SIGCONT);
    step_ladder(member, first_signal);
  }
  deadline_ = Clock::now() + std::chrono::milliseconds(request_.terminate_wait_ms);
}

void GuardedContext::expect_exit(std::uint32_t rank) {
  if (rank >= members_.size()) return;
  members_[rank].exit_by = Clock::now() + time_to_exit();
  if (const auto stat = process_stat(members_[rank].pid)) members_[rank].cpu_seen = stat->cpu();
}

/// One that still works, as a profiler that writes its trace, gets more time, but not for ever.
bool GuardedContext::extend_exit(Member& member, Clock::time_point now) const {
  constexpr int kMostExtensions = 10;
  const auto stat = process_stat(member.pid);
  if (!stat || member.extensions >= kMostExtensions) return false;
  if (stat->cpu() <= member.cpu_seen && stat->state != 'D') return false;
  ++member.extensions;
  member.cpu_seen = stat->cpu();
  member.exit_by = now + time_to_exit();
  return true;
}

GuardedContext::Clock::duration GuardedContext::time_to_exit() const {
  return std::max<Clock::duration>(std::chrono::milliseconds(request_.exit_grace_ms), kLeastTimeToExit);
}

void GuardedContext::stop_lingering(Clock::time_point now) {
  for (Member& member : members_) {
    if (member.ended || !member.exit_by || now < *member.exit_by || extend_exit(member, now)) continue;
    member.exit_by.reset();
    const std::string message = fmt::format(
        "its function returned, but its process did not exit within its exit_grace ({} s), so it was stopped: a static "
        "destructor or an exit handler hangs",
        std::chrono::duration<double>(time_to_exit()).count());
    record_failure(process_slot(*memory_, member.slot).crash, "retinue::TimeoutError", message.c_str());
    stop();
  }
}

void GuardedContext::pause_deadlines(Clock::time_point now) {
  if (!paused_since_) paused_since_ = now;
  if (!deadline_ || !leaves_time()) return;
  paused_time_ = *deadline_ - now;
  deadline_.reset();
}

void GuardedContext::resume_deadlines(Clock::time_point now) {
  for (Member& member : members_)
    if (paused_since_ && member.exit_by) *member.exit_by += now - *paused_since_;
  paused_since_.reset();
  if (paused_time_ && !deadline_ && leaves_time()) deadline_ = now + *paused_time_;
  paused_time_.reset();
}

std::optional<GuardedContext::Clock::time_point> GuardedContext::next_time() const {
  std::optional<Clock::time_point> next = deadline_;
  const auto consider = [&next](const std::optional<Clock::time_point>& time) {
    if (time && (!next || *time < *next)) next = time;
  };
  if (logs_) consider(logs_->next_time());
  for (const Member& member : members_)
    if (!member.ended && !paused_since_) consider(member.exit_by);
  return next;
}

void GuardedContext::on_time(Clock::time_point now) {
  if (logs_) logs_->on_time(now);
  if (!paused_since_) stop_lingering(now);
  if (!deadline_ || now < *deadline_) return;
  if (phase_ == Phase::kRunning) {
    stop();
  } else if (phase_ == Phase::kTerminating) {
    kill_all(now);
  } else if (phase_ == Phase::kKilling) {
    for (Member& member : members_)
      if (!member.ended) abandon(member);
    after_end();
  } else if (phase_ == Phase::kSymbolizing) {
    kill(helper_, SIGKILL);
    deadline_.reset();
  }
}

void GuardedContext::take_descriptors(std::vector<FileDescriptor>& descriptors) {
  if (request_.tells_failure == 0 || descriptors.size() != kRequestDescriptors + 1) return;
  sentinel_ = std::move(descriptors.back());
  descriptors.pop_back();
  standard_error_.reset(fcntl(descriptors[STDERR_FILENO].get(), F_DUPFD_CLOEXEC, 3));
}

bool GuardedContext::has_member(std::uint32_t process_slot_index) const {
  return std::any_of(members_.begin(), members_.end(),
                     [&](const Member& member) { return member.slot == process_slot_index; });
}

}  // namespace retinue
