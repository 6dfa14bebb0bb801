// Ranks that their caller forked itself: no children of the guardian, which knows them by descriptors.
#include <signal.h>

#include "os/process/process_calls.h"
#include "os/sync/clock.h"
#include "process/guardian/guarded_context.h"

namespace retinue {
namespace {

constexpr int kUnknownStatus = 255 << 8;  // A failure.

}  // namespace

void GuardedContext::adopt(std::uint32_t rank, pid_t pid, FileDescriptor pidfd) {
  if (rank >= members_.size()) return;
  Member& member = members_[rank];
  if (member.ended) {  // Refused meanwhile.
    if (pid > 0) kill(pid, SIGKILL);
    return;
  }
  ProcessSlot& slot = process_slot(*memory_, member.slot);
  record().state.store(ContextRecord::kRunning, std::memory_order_release);
  if (pid <= 0) {
    note_failed_fork(member,
                     "forking the rank failed, or the guardian had no descriptor left for it (raise ulimit -n)");
    after_end();
    return;
  }
  member.pid = pid;
  member.pidfd = std::move(pidfd);
  slot.pid.store(pid, std::memory_order_relaxed);
  slot.started_ns.store(monotonic_ns(), std::memory_order_relaxed);
  slot.state.store(ProcessState::kStarted, std::memory_order_release);
  notify_context(record());
  if (phase_ == Phase::kRunning) return;
  step_ladder(member, phase_ == Phase::kTerminating ? SIGTERM : SIGKILL);  // The job already ends: so does it.
}

std::vector<int> GuardedContext::adopted_pidfds() const {
  std::vector<int> pidfds;
  for (const Member& member : members_)
    if (member.pidfd && !member.ended) pidfds.push_back(member.pidfd.get());
  return pidfds;
}

void GuardedContext::on_adopted_exit(int pidfd) {
  for (Member& member : members_) {
    if (member.pidfd.get() != pidfd || member.ended) continue;
    note_end(member, status_of_adopted(member), use_of_zombie(member.pid));
  }
  after_end();
}

int GuardedContext::kill_adopted() const {
  int alive = 0;
  for (const Member& member : members_) {
    if (!member.pidfd || member.ended || wait_for_exit(member.pidfd.get(), std::chrono::milliseconds(0))) continue;
    ++alive;
    signal_group(member, SIGKILL);
  }
  return alive;
}

/// Only its parent may wait for it, and may have done so: then what the rank noted itself must do.
int GuardedContext::status_of_adopted(const Member& member) const {
  const ProcessSlot& slot = process_slot(*memory_, member.slot);
  const int status = exit_status_of_zombie(member.pid);
  if (status >= 0) return status;
  if (slot.state.load(std::memory_order_acquire) == ProcessState::kFinished)
    return slot.exit_status.load(std::memory_order_relaxed);
  if (const int reaped = exit_status_of_reaped(member.pidfd.get()); reaped >= 0) return reaped;
  if (slot.crash.phase.load(std::memory_order_acquire) == 2 && slot.crash.signal > 0) return slot.crash.signal;
  if (member.stop_signal != 0) return member.stop_signal;
  process_slot(*memory_, member.slot).is_status_taken = 1;
  return kUnknownStatus;
}

}  // namespace retinue
