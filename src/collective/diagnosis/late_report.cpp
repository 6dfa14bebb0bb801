#include "collective/diagnosis/late_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/ranks_text.h"
#include "collective/board/rendezvous.h"
#include "collective/diagnosis/late_text.h"
#include "collective/diagnosis/report.h"
#include "ipc/memory/late_mailbox.h"
#include "os/process/process_look.h"
#include "retinue/base/error.h"
#include "retinue/os/detail/late_after.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;

/// Once more before the wait's error, which shows the stacks that are found then.
constexpr auto kBeforeTheEnd = 5s;
/// A bit of the word, beside a time: this has been said.
constexpr std::uint64_t kLast = 1;
constexpr auto kAgainWhenTheMailboxIsFull = 1s;
constexpr auto kReadGroupsTime = 20ms;

}  // namespace

std::vector<std::string> long_waits_of(const JobGroup& group, const Board& board, int rank) {
  std::vector<std::string> waits;
  const std::uint32_t slot = board.member(rank).process_slot;
  try {
    for (const SeenGroup& seen : groups_of_job(group, JobDeadline::after(group.memory->header(), kReadGroupsTime)))
      for (int member = 0; member < seen.board.size(); ++member) {
        if (seen.board.member(member).process_slot != slot) continue;
        const auto wait = read_wait(seen.board.member(member).wait);
        if (wait && seen.is_there()) waits.push_back(fmt::format("in group \"{}\" {}", seen.name, wait->text));
      }
  } catch (const TimeoutError&) {
    // Somebody stands still in the registry: then without this.
  }
  return waits;
}

LateReport::LateReport(const JobGroup& group, const Board& board, const CommunicatorOptions& options)
    : group_(group), board_(board), late_after_(late_after_of(options.late_after)) {}

void LateReport::look(const SeenWait& own, JobDeadline deadline, const FirstLooks& first_looks) {
  const auto now = job_now(group_.memory->header());
  const auto waited = now - own.since;
  if (late_after_ <= 0ns || waited < late_after_) return;
  std::atomic<std::uint64_t>& next = board_.header().next_late_report;
  std::uint64_t said_until = next.load(std::memory_order_acquire);
  const bool is_last = deadline.left(kBeforeTheEnd + 1s) <= kBeforeTheEnd;
  const bool is_due = is_last ? (said_until & kLast) == 0 : said_until <= static_cast<std::uint64_t>(now.count());
  if (!is_due || own.late.empty()) return;
  const std::vector<int> late = Reporter(group_, board_, 0).late_at_the_ends(late_of_all(own, now));
  if (is_held_by_debugger(late)) return;
  const std::uint64_t until =
      (static_cast<std::uint64_t>((now + waited + late_after_).count()) & ~kLast) | (is_last ? kLast : 0);
  if (!next.compare_exchange_strong(said_until, until, std::memory_order_acq_rel)) return;
  told_until_ = until;
  if (deliver(text(own, late, deadline), first_looks)) return;
  told_until_ = static_cast<std::uint64_t>((now + kAgainWhenTheMailboxIsFull).count()) & ~kLast;
  next.store(told_until_, std::memory_order_release);
}

void LateReport::end() {
  if (told_until_ == 0) return;
  board_.header().next_late_report.compare_exchange_strong(told_until_, 0, std::memory_order_acq_rel);
  told_until_ = 0;
}

bool LateReport::is_held_by_debugger(const std::vector<int>& late) const {
  const Reporter report(group_, board_, 0);
  return std::any_of(late.begin(), late.begin() + static_cast<std::ptrdiff_t>(std::min(late.size(), kNamedMissing)),
                     [&](int rank) {
                       const pid_t pid = report.pid_of(rank);
                       return state_of_thread(pid, pid) == 't';
                     });
}

std::vector<int> LateReport::late_of_all(const SeenWait& own, std::chrono::nanoseconds now) const {
  const Reporter report(group_, board_, 0);
  std::set<int> late(own.late.begin(), own.late.end());
  for (int rank = 0; rank < board_.size(); ++rank) {
    const auto wait = rank == group_.rank ? std::nullopt : read_wait(board_.member(rank).wait);
    if (wait && wait->needs_all() && now - wait->since >= late_after_ && !report.stands_still(rank))
      late.insert(wait->late.begin(), wait->late.end());
  }
  late.erase(group_.rank);
  return {late.begin(), late.end()};
}

std::string LateReport::missing_text(const SeenWait& own, int rank) const {
  // Who waits for a message is in no collective with which another's could be compared.
  const Reporter report = own.is_for_message ? Reporter(group_, board_, own.text)
                                             : Reporter(group_, board_, board_.newest_call(group_.rank).sequence);
  const std::int32_t pid = report.pid_of(rank);
  std::string text = fmt::format("  rank {} (pid {}) is missing{}\n", rank, pid, report.seen(rank));
  for (const std::string& wait : long_waits_of(group_, board_, rank)) text += fmt::format("    {}\n", wait);
  if (pid > 0) text += activity_line(pid);
  return text;
}

std::string LateReport::text(const SeenWait& own, const std::vector<int>& late, JobDeadline deadline) const {
  const JobHeader& header = group_.memory->header();
  const auto now = job_now(header);
  std::string text = late_head(group_.name, late);
  const Reporter report(group_, board_, 0);
  std::vector<int> waiting;
  for (int rank = 0; rank < board_.size(); ++rank) {
    const auto wait = rank == group_.rank ? own : read_wait(board_.member(rank).wait);
    if (!wait) continue;
    waiting.push_back(rank);
    if (waiting.size() > kNamedWaiting) continue;
    text +=
        fmt::format("  {} (pid {}), for {} now\n", wait->text, report.pid_of(rank), duration_text(now - wait->since));
  }
  if (waiting.size() > kNamedWaiting) text += fmt::format("  {}: also waiting\n", ranks_behind(waiting, kNamedWaiting));
  for (std::size_t i = 0; i < std::min(late.size(), kNamedMissing); ++i) text += missing_text(own, late[i]);
  if (late.size() > kNamedMissing) text += fmt::format("  {}: also missing\n", ranks_behind(late, kNamedMissing));
  const auto left = deadline.left(std::chrono::hours(24 * 365));
  const auto again = left > kBeforeTheEnd
                         ? std::min<std::chrono::nanoseconds>(now - own.since + late_after_, left - kBeforeTheEnd)
                         : left;
  return text + late_end(again, left);
}

bool LateReport::deliver(const std::string& text, const FirstLooks& first_looks) const {
  const Reporter report(group_, board_, 0);
  LooksAtProcesses looks;
  for (const auto& [rank, look] : first_looks) looks[report.pid_of(rank)] = look;
  return show_late_report(group_.memory.get(), text, looks);
}

}  // namespace retinue
