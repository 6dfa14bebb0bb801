// What becomes of the dead and of what they leave behind.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "os/process/process_calls.h"
#include "os/sockets/control_socket.h"
#include "process/guardian/guardian.h"
#include "process/guardian/job_sweep.h"
#include "process/guardian/unretrieved_failure.h"
#include "retinue/base/error.h"
#include "retinue/os/detail/standard_error.h"

namespace retinue {
namespace {

using Clock = GuardedContext::Clock;

constexpr auto kOrphansTime = std::chrono::seconds(10);
constexpr auto kAbandonTime = std::chrono::seconds(10);
constexpr auto kNoPatience = std::chrono::milliseconds(0);  // The guardian waits for nobody.

}  // namespace

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
    if (late_reporter_.owns(pid)) late_reporter_.on_exit();
    watcher_.on_exit(pid);
    for (AbandonedRank& rank : abandoned_) rank.ended |= rank.pid == pid;
    for (const auto& context : contexts_) {
      if (!context->owns(pid)) continue;
      context->on_exit(pid, status, use_of(usage));
      break;
    }
  }
}

void Guardian::end_contexts() {
  stop_contexts_of_dead_parents();
  for (const auto& context : contexts_) context->hand_over_abandoned(abandoned_);
  const auto is_done = [](const auto& each) { return each->is_done(); };
  // What ranks that are dead now had sent is here: what they reserved beyond that was never sent.
  if (std::any_of(contexts_.begin(), contexts_.end(), is_done)) receive_requests();
  const bool last = std::all_of(contexts_.begin(), contexts_.end(), is_done);
  // Orphans cannot be told apart by context; while another one runs they may be its own.
  if (last && !contexts_.empty()) sweep_orphans();
  // A context whose ranks started others ends after those.
  const auto is_finished = [this](const std::unique_ptr<GuardedContext>& context) {
    return context->is_done() && std::none_of(contexts_.begin(), contexts_.end(), [&](const auto& other) {
             return context->has_member(other->parent_slot());
           });
  };
  is_end_held_ = false;
  for (;;) {
    const auto found = std::find_if(contexts_.begin(), contexts_.end(), is_finished);
    if (found == contexts_.end()) break;
    const std::uint32_t index = (*found)->index();
    const std::uint32_t id = context_record(*setup_.memory, index).id;
    is_end_held_ = !free_starts_of_members(**found);
    if (is_end_held_) break;
    (*found)->publish_end();
    contexts_.erase(found);
    end_abandoned(index, id);
    free_ended_contexts();  // Before the next end is told: who hears of it finds nothing left.
  }
  if (!unfreed_.empty()) free_ended_contexts();
  if (!abandoned_.empty()) free_abandoned_ranks();
}

void Guardian::end_abandoned(std::uint32_t index, std::uint32_t id) {
  ContextRecord& record = context_record(*setup_.memory, index);
  if (!claim_abandoned(record, id)) return;  // Its owner may have freed it, and started something else in it.
  report_unretrieved_failure(*setup_.memory, record, kNoPatience);
  unfreed_.push_back(index);
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

void Guardian::free_abandoned_ranks() {
  std::erase_if(abandoned_, [this](AbandonedRank& rank) {
    rank.ended |= rank.pidfd && wait_for_exit(rank.pidfd.get(), kNoPatience);
    try {
      return rank.ended && free_abandoned_slot(*setup_.memory, rank.slot);
    } catch (const TimeoutError&) {
      return false;  // Somebody stopped holds the table of blocks: at another event.
    }
  });
}

/// What they had reserved for others, or not freed. False: not yet, another process is in the block table.
bool Guardian::free_starts_of_members(const GuardedContext& context) {
  const std::bitset<kMaxProcesses> members = context.member_slots();
  const auto is_theirs = [&](std::uint32_t index) {
    return members.test(context_record(*setup_.memory, index).parent_slot);
  };
  free_ended_contexts();
  if (std::any_of(unfreed_.begin(), unfreed_.end(), is_theirs)) return false;
  report_unretrieved_failures(*setup_.memory, members, kNoPatience);
  try {
    free_starts_of(*setup_.memory, members);
  } catch (const TimeoutError&) {
    return false;
  }
  return true;
}

void Guardian::stop_contexts_of_dead_parents() {
  for (const auto& context : contexts_) {
    const ProcessSlot& parent = process_slot(*setup_.memory, context->parent_slot());
    if (parent.state.load(std::memory_order_acquire) != ProcessState::kDead) continue;
    ContextRecord& record = context_record(*setup_.memory, context->index());
    record.abandoned.store(record.id, std::memory_order_seq_cst);
    context->stop();
  }
}

/// Kills what dead ranks left behind, again and again, since the dying may still fork.
void Guardian::sweep_orphans() {
  const auto end = Clock::now() + kOrphansTime;
  for (;;) {
    bool any = false;
    for (const pid_t pid : children_or_sweep()) {
      if (std::any_of(contexts_.begin(), contexts_.end(), [pid](const auto& each) { return each->owns(pid); }))
        continue;
      if (program_report_.owns(pid)) continue;
      kill(pid, SIGKILL);
      // An abandoned rank has been waited for.
      any |= std::none_of(abandoned_.begin(), abandoned_.end(), [pid](const auto& rank) { return rank.pid == pid; });
    }
    if (!any || Clock::now() >= end) return;
    pollfd entry{child_events_.get(), POLLIN, 0};
    poll(&entry, 1, 100);
    reap();
  }
}

/// The program is gone without a word: so is the job. What its ranks wrote is still shown.
void Guardian::end_without_program() {
  const auto end = Clock::now() + kAbandonTime;
  bool is_hurried = false;
  kill_ranks_not_adopted();
  for (;;) {
    const bool is_late = Clock::now() >= end;
    const Remains remains = kill_ranks_and_orphans();
    if (remains.processes == 0 && !is_hurried) {
      is_hurried = true;
      for (const auto& context : contexts_) context->limit_log_drain();
    }
    if (is_late)
      for (const pid_t pid : remains.log_forwarders) kill(pid, SIGKILL);
    if (is_late || (remains.processes == 0 && remains.log_forwarders.empty())) break;
    pollfd entry{child_events_.get(), POLLIN, 0};
    poll(&entry, 1, 20);
    reap();
  }
  report_unretrieved_failures(*setup_.memory, std::bitset<kMaxProcesses>().set(), kNoPatience);
  contexts_.clear();                    // The sweep needs their descriptors.
  if (had_closures_) sweep_by_marks();  // Their orphans do not come to the guardian.
  watcher_.end();
  _exit(0);
}

std::vector<pid_t> Guardian::children_or_sweep() const {
  try {
    std::vector<pid_t> children = children_of_self();
    std::erase_if(children, [this](pid_t pid) { return watcher_.owns(pid); });
    return children;
  } catch (const SystemError&) {  // Without descriptors, or on a kernel that does not tell.
    sweep_by_marks();
    return {};
  }
}

/// Whether it could.
bool Guardian::sweep_by_marks() const {
  try {
    sweep_job(*setup_.memory);
    return true;
  } catch (const SystemError& error) {
    write_standard_error(fmt::format("retinue: the guardian: {}\n", error.what()));
    return false;
  }
}

Guardian::Remains Guardian::kill_ranks_and_orphans() const {
  Remains remains;
  for (const pid_t pid : children_or_sweep()) {
    if (std::any_of(contexts_.begin(), contexts_.end(),
                    [pid](const auto& each) { return each->owns_log_forwarder(pid); })) {
      remains.log_forwarders.push_back(pid);
      continue;
    }
    ++remains.processes;
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
  }
  for (const auto& context : contexts_) remains.processes += context->kill_adopted();
  return remains;
}

}  // namespace retinue
