// How a member notices that its group is of no use any more, and tells the others.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/thrown_here.h"
#include "collective/diagnosis/report.h"
#include "collective/session/session.h"
#include "retinue/base/deadline.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

/// A member is at the others' buffers for the time of one copy, which takes milliseconds for what is usual, and at most
/// some nanoseconds an element; longer only if it is stopped.
constexpr auto kReleaseTime = std::chrono::seconds(10);
constexpr auto kTimeToCome = std::chrono::milliseconds(100);
constexpr auto kReleaseTimeOfElement = std::chrono::nanoseconds(10);

}  // namespace

void Session::abandon(const std::string& begun, const std::string& how) {
  if (is_in_a_fork()) return;
  if (!failure_ && is_poisoned()) set_failure_from_poison();
  if (!failure_) {
    const bool unwinds = std::uncaught_exceptions() > 0;
    const std::string text = fmt::format(
        "group \"{}\": rank {} {} before {} had finished{}", group_.name, rank(), how, begun,
        unwinds ? ", because of an exception" : ": keep the Request that start() returns, and wait() for it");
    note_failed_call();
    if (unwinds)
      poison(board_, FailureKind::kPeerLost, text, {rank()});
    else
      poison(board_, FailureKind::kMismatch, text, {});
    failure_ = std::make_exception_ptr(UsageError(text));
  }
  await_nobody_inside();
}

void Session::note_failed_call() {
  if (own_.failed_call.load(std::memory_order_relaxed) == 0)
    own_.failed_call.store(is_in_call_ ? sequence_ : sequence_ + 1, std::memory_order_seq_cst);
}

bool Session::has_failed_member() const {
  if (!is_poisoned()) return false;
  for (int i = 0; i < size(); ++i)
    if (board_.member(i).failed_call.load(std::memory_order_seq_cst) - 1 < sequence_) return true;  // 0 is none.
  return false;
}

void Session::await_nobody_inside() {
  const std::uint64_t inside = sequence_ << kStepBits;
  if (!is_in_call_) return;
  if (own_.progress.load(std::memory_order_relaxed) == inside) post(1);
  const auto elements = static_cast<std::int64_t>(line(rank()).count.load(std::memory_order_relaxed));
  waiter_.wait_until_none_is_at(
      progress_words({0, size()}), inside,
      JobDeadline::after(group_.memory->header(), kReleaseTime + elements * kReleaseTimeOfElement));
}

void Session::leave() {
  await_nobody_inside();
  std::rethrow_exception(failure_);
}

void Session::fail(Waiter::Outcome outcome, const WordSet& words, std::uint64_t target) {
  fail(outcome, AwaitedWords(words, target, words.first), Reporter(group_, board_, sequence_), waiter_.timeout());
}

void Session::fail_waiting(Waiter::Outcome outcome, const Awaited& awaited, const std::string& wait,
                           std::chrono::nanoseconds timeout) {
  fail(outcome, awaited, Reporter(group_, board_, fmt::format("rank {} {}", rank(), wait)), timeout);
}

void Session::fail(Waiter::Outcome outcome, const Awaited& awaited, const Reporter& report,
                   std::chrono::nanoseconds timeout) {
  if (outcome == Waiter::Outcome::kPoisoned) fail_poisoned();
  if (outcome == Waiter::Outcome::kInterrupted) fail_interrupted(report);
  std::vector<int> late;
  std::vector<int> lost;
  for (int i = 0; i < size(); ++i) {
    if (!awaited.is_late(i)) continue;
    if (awaited.is_reported_late(i)) late.push_back(i);
    if (waiter_.is_lost(i) && awaited.is_in_vain_without(i)) lost.push_back(i);
  }
  if (outcome == Waiter::Outcome::kLost)
    break_group_once(FailureKind::kPeerLost, report.lost(lost), lost);
  else
    break_group_once(FailureKind::kTimeout,
                     report.timed_out(late, timeout, std::bind_front(&LongWait::activity_of, &waiter_.long_wait())),
                     {});
  leave();
}

void Session::fail_interrupted(const Reporter& report) {
  break_group_once(FailureKind::kPeerLost, report.interrupted(), {rank()});
  leave();
}

void Session::fail_mismatch(std::uint64_t sequence) {
  // Who needs few lines may be the first to notice: those that are about to come are to be named with their calls.
  AwaitedWords lines(line_sequences(sequence, {0, size()}), sequence, 0);
  waiter_.wait(lines, JobDeadline::after(memory().header(), kTimeToCome));
  if (failure_) leave();  // By a message that came meanwhile.
  break_group(FailureKind::kMismatch, Reporter(group_, board_, sequence).mismatch(), {});
  leave();
}

void Session::drop_message(const std::string& wait) {
  const std::string text = fmt::format("rank {} dropped the request of a message that {}", rank(), wait);
  if (std::uncaught_exceptions() == 0)
    return fail_message(text + ": keep the Request that isend() or irecv() returns, and wait() for it");
  if (!failure_)
    break_group_once(FailureKind::kPeerLost,
                     fmt::format("group \"{}\": {}, because of an exception", group_.name, text), {rank()});
}

void Session::fail_message(const std::string& text) {
  if (failure_) return;
  break_group_once(FailureKind::kMismatch, fmt::format("group \"{}\": {}", group_.name, text), {});
}

void Session::fail_by(std::exception_ptr error) {
  const Reporter report(group_, board_, sequence_);
  std::string text;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    text = report.threw(exception.what());
  } catch (...) {
    text = report.threw("an exception that is not a std::exception");
  }
  note_failed_call();
  poison(board_, FailureKind::kPeerLost, text, {rank()});
  failure_ = std::move(error);
  leave();
}

void Session::fail_by_surprise() noexcept {
  if (failure_) return;
  try {
    throw;
  } catch (const UsageError&) {
    // As on all members, who stay in step.
  } catch (...) {
    try {
      fail_by(std::current_exception());
    } catch (...) {
      // Which is `failure_` now.
    }
  }
}

void Session::check_giver(int giver) {
  if (has_failed_member()) fail_poisoned();
  if (!waiter_.is_lost(giver)) return;
  break_group_once(FailureKind::kPeerLost, Reporter(group_, board_, sequence_).lost({giver}), {giver});
  leave();
}

void Session::fail_sizes(int giver, std::size_t given, std::size_t wanted) {
  break_group(FailureKind::kMismatch, Reporter(group_, board_, sequence_).wrong_size(giver, given, wanted), {});
  leave();
}

void Session::fail_poisoned() {
  set_failure_from_poison();
  leave();
}

void Session::set_failure_from_poison() {
  note_failed_call();
  const Poison& poison = board_.header().poison;
  // Written within microseconds, unless its writer gets no CPU or was killed meanwhile.
  const Deadline deadline = Deadline::after(std::chrono::seconds(2));
  while (poison.state.load(std::memory_order_acquire) != Poison::kWritten && !deadline.passed()) sched_yield();
  if (poison.state.load(std::memory_order_acquire) == Poison::kWritten)
    set_failure(poison.kind, poison.text, {poison.ranks, poison.ranks + poison.rank_count});
  else
    set_failure(FailureKind::kPeerLost,
                fmt::format("group \"{}\": a member died, or was stopped, while it reported a failure", group_.name),
                {});
}

void Session::break_group_once(FailureKind kind, const std::string& text, const std::vector<int>& ranks) {
  // Looked at after the members: who poisoned the group and then left must not be taken for the lost one.
  if (is_poisoned())
    set_failure_from_poison();
  else
    break_group(kind, text, ranks);
}

void Session::break_group(FailureKind kind, const std::string& text, const std::vector<int>& ranks) {
  note_failed_call();
  poison(board_, kind, text, ranks);
  set_failure(kind, text, ranks);
}

void Session::set_failure(FailureKind kind, const std::string& text, const std::vector<int>& ranks) {
  switch (kind) {
    case FailureKind::kPeerLost:
      failure_ = thrown_here(PeerLost(text, ranks));
      break;
    case FailureKind::kMismatch:
      failure_ = thrown_here(CollectiveMismatch(text));
      break;
    case FailureKind::kTimeout:
      failure_ = thrown_here(TimeoutError(text));
      break;
  }
}

}  // namespace retinue
