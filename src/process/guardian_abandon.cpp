#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "ipc/job_layout.h"
#include "os/process_calls.h"
#include "process/guardian.h"
#include "process/job_sweep.h"

namespace retinue {
namespace {

using Clock = GuardedContext::Clock;

constexpr auto kAbandonTime = std::chrono::seconds(10);

}  // namespace

/// The program is gone without a word: so is the job. What its ranks wrote is still shown.
void Guardian::abandon_ship() {
  const auto end = Clock::now() + kAbandonTime;
  bool is_hurried = false;
  for (;;) {
    const bool is_late = Clock::now() >= end;
    const Remains remains = kill_ranks_and_orphans();
    if (remains.processes == 0 && !is_hurried) {
      is_hurried = true;
      for (const auto& context : contexts_) context->hurry_logs();
    }
    if (is_late)
      for (const pid_t pid : remains.log_clerks) kill(pid, SIGKILL);
    if (is_late || (remains.processes == 0 && remains.log_clerks.empty())) break;
    pollfd entry{child_events_.get(), POLLIN, 0};
    poll(&entry, 1, 20);
    reap();
  }
  if (had_closures_) sweep_job(*setup_.memory);  // Their orphans do not come to the guardian.
  _exit(0);
}

Guardian::Remains Guardian::kill_ranks_and_orphans() const {
  Remains remains;
  for (const pid_t pid : children_of_self()) {
    if (std::any_of(contexts_.begin(), contexts_.end(),
                    [pid](const auto& each) { return each->owns_log_clerk(pid); })) {
      remains.log_clerks.push_back(pid);
      continue;
    }
    ++remains.processes;
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
  }
  for (std::uint32_t slot = kGuardianSlot + 1; slot < kMaxProcesses; ++slot) {  // Adopted ranks are no children.
    const ProcessSlot& process = process_slot(*setup_.memory, slot);
    const ProcessState state = process.state.load(std::memory_order_acquire);
    if (state != ProcessState::kRunning || !process.is_alive()) continue;
    ++remains.processes;
    kill(process.pid.load(std::memory_order_relaxed), SIGKILL);
  }
  return remains;
}

}  // namespace retinue
