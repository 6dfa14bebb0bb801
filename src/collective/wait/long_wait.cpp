#include "collective/wait/long_wait.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "collective/diagnosis/report.h"
#include "ipc/memory/late_mailbox.h"
#include "os/process/process_calls.h"
#include "os/sync/clock.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;

/// A search costs something with each group and each member: those that found nothing become rarer.
constexpr auto kSoonestSearch = 500ms;
constexpr auto kLatestSearch = 10s;
constexpr int kSearchesPerWait = 8;
/// Members that somebody wants to know more about; each costs a look into several files.
constexpr std::size_t kMostLooks = 8;

}  // namespace

LongWait::LongWait(const JobGroup& group, const Board& board, const CommunicatorOptions& options)
    : group_(group),
      board_(board),
      own_(board.member(group.rank)),
      deadlocks_(group, board),
      late_report_(group, board, options) {}

void LongWait::look(const Awaited& awaited, JobDeadline deadline, std::uint64_t moves) noexcept {
  const JobHeader& header = group_.memory->header();
  if (job_clock_stands(header)) return;  // Somebody debugs: nobody is late.
  try {
    if (!is_published_) begin(awaited);
    publish(awaited);
    own_.wait.moves.store(moves, std::memory_order_release);
    own_.wait.looks.fetch_add(1, std::memory_order_seq_cst);
    if (awaited.needs() == Needs::kUnknown) return;
    const auto now = job_now(header);
    if (now >= next_search_) {
      const bool may_be_one = deadlocks_.look();
      const std::chrono::nanoseconds rarely = (now - wait_.since) / kSearchesPerWait;
      next_search_ = now + (may_be_one ? kSoonestSearch
                                       : std::clamp<std::chrono::nanoseconds>(rarely, kSoonestSearch, kLatestSearch));
    }
    late_report_.look(wait_, deadline, first_looks_);
  } catch (const std::exception&) {
    // For want of memory or descriptors: the wait goes on all the same, and another look may find what this one needs.
  }
}

void LongWait::begin(const Awaited& awaited) {
  // What it has waited before the first look is known; what the clock did meanwhile is not.
  wait_ = {};
  wait_.since = job_now(group_.memory->header()) - kFirstLook;
  next_search_ = wait_.since;
  first_looks_.clear();
  if (awaited.needs() == Needs::kUnknown) return;
  const Reporter report(group_, board_, board_.newest_call(group_.rank).sequence);
  for (int rank = 0; rank < board_.size() && first_looks_.size() < kMostLooks; ++rank)
    if (awaited.is_reported_late(rank)) first_looks_.emplace(rank, look_at_activity(report.pid_of(rank)));
}

void LongWait::publish(const Awaited& awaited) {
  SeenWait wait;
  wait.since = wait_.since;
  wait.needs_only_one = awaited.needs() == Needs::kAnyLate;
  wait.is_certain = !awaited.has_own_deadline() && !has_own_deadline_;
  wait.is_for_message = awaited.is_for_message();
  wait.has_other_threads = count_tasks() != 1;
  // A wait that others may end is for nobody.
  for (int rank = 0; rank < board_.size() && awaited.needs() != Needs::kUnknown; ++rank)
    if (awaited.is_reported_late(rank)) wait.late.push_back(rank);
  const std::string own_wait = awaited.describe();
  wait.text = own_wait.empty() ? Reporter(group_, board_, board_.newest_call(group_.rank).sequence).own_call()
                               : "rank " + std::to_string(group_.rank) + " " + own_wait;
  if (is_published_ && wait.is_like(wait_)) return;
  write_wait(own_.wait, wait);
  wait_ = std::move(wait);
  is_published_ = true;
}

void LongWait::withdraw() {
  withdraw_wait(own_.wait);
  deadlocks_.forget();
  late_report_.end();
  is_published_ = false;
}

std::string LongWait::activity_of(int rank, std::int32_t pid) const {
  const auto before = first_looks_.find(rank);
  std::string does =
      describe_activity(pid, before == first_looks_.end() ? std::nullopt : before->second, look_at_activity(pid));
  for (const std::string& wait : long_waits_of(group_, board_, rank)) does += ", and " + wait;
  const auto note = note_of_process(*group_.memory, pid);
  if (!note) return does;
  const std::chrono::duration<double> ago(std::chrono::nanoseconds(monotonic_ns() - note->time_ns));
  return fmt::format("{}; its stack {:.1f} s earlier:\n{}   ", does, ago.count(), note->text);
}

}  // namespace retinue
