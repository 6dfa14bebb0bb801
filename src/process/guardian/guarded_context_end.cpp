// The last part of a context: the helper that names the stacks, the failure that is told, the end that is published.
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "ipc/memory/poller.h"
#include "process/failure/failure_text.h"
#include "process/failure/helper.h"
#include "process/guardian/guarded_context.h"
#include "process/logs/console.h"
#include "process/observe/run_report.h"
#include "process/trace/failure_trace.h"
#include "retinue/base/error.h"
#include "retinue/os/detail/standard_error.h"

namespace retinue {
namespace {

constexpr auto kHelperTime = std::chrono::seconds(20);
/// Who waits for the end waits no longer for a standard error that nobody reads.
constexpr auto kReaderTime = std::chrono::seconds(2);

}  // namespace

void GuardedContext::after_end() {
  if (phase_ == Phase::kSymbolizing || phase_ == Phase::kDone) return;
  const bool all = std::all_of(members_.begin(), members_.end(), [](const Member& member) { return member.ended; });
  if (!all) return;
  release_arguments();
  begin_symbolizing();
  if (logs_) finish_logs();
}

void GuardedContext::hand_over_abandoned(std::vector<AbandonedRank>& to) {
  if (!std::exchange(has_abandoned_, false)) return;
  for (Member& member : members_)
    if (member.pid != 0 && process_slot(*memory_, member.slot).abandoned_in != 0)
      to.push_back({member.slot, std::exchange(member.pid, 0), std::move(member.pidfd)});
}

/// Nobody decodes them any more; but who waits for the ranks' ends of pipes does not wait for the context's end.
void GuardedContext::release_arguments() {
  try {
    memory_->release_carried(record().request);
  } catch (const Error&) {
    return;  // Somebody stands still in the block table: they go with the context.
  }
  ring_all_pollers(*memory_);
}

bool GuardedContext::has_failed() const {
  return std::any_of(members_.begin(), members_.end(), [this](const Member& member) {
    return is_failure(outcome_of(process_slot(*memory_, member.slot)));
  });
}

void GuardedContext::finish_logs() {
  logs_->finish(has_failed() ? LogForwarder::Files::kKeep : LogForwarder::Files::kRemoveTemporary);
}

void GuardedContext::begin_symbolizing() {
  deadline_ = Clock::now() + kHelperTime;
  start_helper_for_rest();
}

void GuardedContext::start_helper_for_rest() {
  std::vector<EndedRank> ranks;
  for (const Member& member : members_) {
    EndedRank rank{&process_slot(*memory_, member.slot), member.error_file, member.error_file_before};
    if (needs_helper(rank)) ranks.push_back(std::move(rank));
  }
  const bool tells = request_.tells_failure != 0 && has_failed();
  const bool reports = !report_file_of(*memory_).empty();
  const bool traces = has_failed() && !failure_trace_folder(request_.logs, *memory_, record().id).empty();
  const bool nothing = ranks.empty() && !tells && !reports && !traces;
  const auto write_files = [this, traces] {
    if (traces) write_trace();
  };
  const auto tell = [this, tells, reports] {
    if (reports) add_to_report();
    if (tells) report_failure(kReaderTime);
  };
  helper_ = nothing ? 0 : start_helper(ranks, caller_rights(), write_files, tell);
  phase_ = helper_ == 0 ? Phase::kDone : Phase::kSymbolizing;
  if (helper_ != 0) return;
  report_failure_without_helper();
  deadline_.reset();
}

void GuardedContext::on_helper_exit(int status) {
  bool died_at_work = false;
  for (const Member& member : members_) {
    std::uint32_t at_work = 1;
    died_at_work |= process_slot(*memory_, member.slot).crash.stack_phase.compare_exchange_strong(at_work, 3);
  }
  helper_ = 0;
  if (!WIFEXITED(status)) clean_up_report(*memory_, record().id);
  has_told_ |= WIFEXITED(status) && WEXITSTATUS(status) == 0;
  // One that debug information made crash takes a single record's names along. Without a deadline there is no more
  // time.
  if (died_at_work && deadline_) {
    start_helper_for_rest();
    return;
  }
  report_failure_without_helper();
  deadline_.reset();
  phase_ = Phase::kDone;
}

void GuardedContext::add_to_report() const {
  try {
    retinue::add_to_report(*memory_, {.id = record().id, .name = request_.name, .slots = slots_by_rank()});
  } catch (const std::exception& error) {
    write_standard_error(
        fmt::format("retinue: {} is missing from the job's report: {}\n", request_.name, error.what()));
  }
}

void GuardedContext::write_trace() const {
  try {
    write_failure_trace(request_.logs, *memory_, record().id, slots_by_rank());
  } catch (const std::exception& error) {
    write_standard_error(fmt::format("retinue: the last calls of {} are lost: {}\n", request_.name, error.what()));
  }
}

/// Its stack has no names then, but the failure is told.
void GuardedContext::report_failure_without_helper() {
  if (request_.tells_failure == 0 || !has_failed() || std::exchange(has_told_, true)) return;
  report_failure(std::chrono::milliseconds(0));  // The guardian waits for nobody.
}

void GuardedContext::report_failure(std::chrono::milliseconds patience) const {
  std::vector<RankOutcome> outcomes;
  for (const Member& member : members_) outcomes.push_back(outcome_of(process_slot(*memory_, member.slot)));
  const std::string trace = failure_trace_folder(request_.logs, *memory_, record().id);
  if (has_failure_trace(trace))
    for (RankOutcome& outcome : outcomes) outcome.trace = trace;
  show_on(standard_error_ ? standard_error_.get() : STDERR_FILENO, failure_text(outcomes, request_.name), patience);
}

std::vector<std::uint32_t> GuardedContext::slots_by_rank() const {
  return {record().slots, record().slots + record().nprocs};
}

std::bitset<kMaxProcesses> GuardedContext::member_slots() const {
  std::bitset<kMaxProcesses> slots;
  for (const Member& member : members_) slots.set(member.slot);
  return slots;
}

void GuardedContext::publish_end() {
  // The sentinel first: who hears of the end finds it readable. Others may hold a copy by accident, so that its closing
  // alone would not do.
  if (sentinel_) {
    [[maybe_unused]] const ssize_t written = write(sentinel_.get(), "", 1);
  }
  ContextRecord& ended = record();
  ended.state.store(ContextRecord::kEnded, std::memory_order_seq_cst);
  notify_context(ended);
}

}  // namespace retinue
