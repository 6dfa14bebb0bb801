// How a member learns that others have made the same call, at once or later.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "collective/diagnosis/report.h"
#include "collective/session/session.h"

namespace retinue {
namespace {

/// Whether their calls and this member's may meet, but for the counts.
bool calls_may_meet(const Session& session, RankRange ranks) {
  const std::uint64_t own = session.line(session.rank()).head.load(std::memory_order_relaxed);
  for (int i = ranks.first; i < ranks.last; ++i)
    if (!heads_may_meet(session.line(i).head.load(std::memory_order_relaxed), own)) return false;
  return true;
}

}  // namespace

WordSet Session::line_sequences(std::uint64_t sequence, RankRange ranks) const {
  return {.base = reinterpret_cast<const std::byte*>(&board_.member(0).lines[sequence % kLines].sequence),
          .first = ranks.first,
          .last = ranks.last};
}

bool Session::same_functions(RankRange ranks) const {
  const LineData& own = line(rank());
  for (int i = ranks.first; i < ranks.last; ++i)
    for (std::size_t k = kFunctionWord; k < kFunctionWord + 3; ++k)
      if (line(i).inline_data[k].load(std::memory_order_relaxed) != own.inline_data[k].load(std::memory_order_relaxed))
        return false;
  return true;
}

bool Session::gives_at_once(const Call& call, int giver) const {
  if ((place(giver) & kStaged) != 0) return true;
  const std::uint64_t count = line(giver).count.load(std::memory_order_relaxed);
  return (place(giver) & kUneven) == 0 && count * call.element_bytes <= line_space(call.shape.op);
}

bool Session::relays(const Call& call) const {
  // All members wait for all: a leader that didn't would not copy their lines.
  const Pattern& pattern = call.pattern;
  return places_.span_caches() && static_cast<std::uint64_t>(size()) > paths_.table.one_level &&
         !pattern.only_root_gives && !pattern.only_root_takes && pattern.result != Pattern::Result::kPrefix;
}

bool Session::arrive_by_relay(const Call& call) {
  if (!relays(call)) return false;
  Relay& relay = *places_.relay();
  relay.begin(sequence_);
  waiter_.look_eagerly([&] { return (relayed_ = relay.advance()) != nullptr; });
  return relayed_ != nullptr;
}

Arrival Session::await_arrival(const Call& call, RankRange ranks) {
  if (failure_) leave();  // By a message since this call was begun.
  const bool all = ranks.last - ranks.first == size();
  if (!all || !arrive_by_relay(call)) {
    const WordSet words = line_sequences(sequence_, ranks);
    const Waiter::Outcome outcome = waiter_.wait(words, sequence_);
    if (outcome != Waiter::Outcome::kArrived) fail(outcome, words, sequence_);
  }
  RETINUE_CRASH_POINT();
  if (all && agreed_ + 1 < sequence_) check_calls_until(sequence_ - 1);
  const LineData& own = line(rank());
  const std::uint64_t own_head = own.head.load(std::memory_order_relaxed);
  const std::uint64_t own_count = own.count.load(std::memory_order_relaxed);
  const int root = static_cast<int>(call.shape.root);
  const bool is_gather = call.shape.kind == CollectiveKind::kGather;
  std::uint64_t differences = 0;
  std::uint64_t counts_differ = 0;
  std::uint64_t common = kPlaceMask;
  std::uint64_t any = own_head;
  std::uint64_t largest = 0;
  for (int i = ranks.first; i < ranks.last; ++i) {
    const LineData& other = line(i);
    const std::uint64_t head = other.head.load(std::memory_order_relaxed);
    const std::uint64_t count = other.count.load(std::memory_order_relaxed);
    differences |= (head ^ own_head) & ~kPlaceMask;
    counts_differ |= count ^ own_count;
    any |= head;
    if (is_gather && i == root) continue;  // What it keeps for itself goes no way.
    if (!is_gather || !gives_at_once(call, i)) common &= head;
    largest = std::max(largest, count);
  }
  const bool uneven = (place_of(any) & kUneven) != 0;
  if (call.shape.kind == CollectiveKind::kAllReduceCoalesced && differences == 0) check_buffers();
  if (differences != 0 && !calls_may_meet(*this, ranks)) fail_mismatch(sequence_);
  if (counts_differ != 0 && !uneven) fail_mismatch(sequence_);
  if (call.shape.op == ReduceOp::kFunction && !same_functions(ranks)) fail_mismatch(sequence_);
  if (all) agreed_ = sequence_;
  bool is_list = uneven;
  if (call.pattern.only_root_gives) {
    common = line(root).head.load(std::memory_order_relaxed);
    largest = line(root).count.load(std::memory_order_relaxed);
    is_list = (place_of(common) & kUneven) != 0;
  }
  return {.places = place_of(common), .uneven = uneven, .is_list = is_list, .count = largest};
}

void Session::await_any_line(const std::vector<int>& ranks, JobDeadline deadline) {
  class AnyLine final : public Awaited {
   public:
    AnyLine(const WordSet& words, std::uint64_t target, const std::vector<int>& ranks)
        : words_(words), target_(target), ranks_(ranks) {}

    bool arrived() override {
      // Sequentially consistent for who is about to park: see Waiter.
      return std::any_of(ranks_.begin(), ranks_.end(),
                         [this](int rank) { return words_.word(rank).load(std::memory_order_seq_cst) >= target_; });
    }
    bool is_late(int rank) const override {
      return std::find(ranks_.begin(), ranks_.end(), rank) != ranks_.end() &&
             words_.word(rank).load(std::memory_order_acquire) < target_;
    }

   private:
    WordSet words_;
    std::uint64_t target_;
    const std::vector<int>& ranks_;
  };
  AnyLine awaited(line_sequences(sequence_, {0, size()}), sequence_, ranks);
  const Waiter::Outcome outcome = waiter_.wait(awaited, deadline);
  if (outcome != Waiter::Outcome::kArrived)
    fail(outcome, awaited, Reporter(group_, board_, sequence_), waiter_.timeout());
}

void Session::await_all_who_can_come() {
  class AllLines final : public Awaited {
   public:
    AllLines(const WordSet& words, std::uint64_t target, const Waiter& waiter)
        : words_(words), target_(target), waiter_(waiter) {}

    bool arrived() override {
      int late = words_.first;
      return words_.advance(target_, late);
    }
    bool is_late(int rank) const override { return words_.word(rank).load(std::memory_order_acquire) < target_; }
    bool is_in_vain_without(int /*rank*/) const override {
      for (int rank = words_.first; rank < words_.last; ++rank)
        if (is_late(rank) && !waiter_.is_lost(rank)) return false;
      return true;
    }

   private:
    WordSet words_;
    std::uint64_t target_;
    const Waiter& waiter_;
  };
  AllLines awaited(line_sequences(sequence_, {0, size()}), sequence_, waiter_);
  const Waiter::Outcome outcome = waiter_.wait(awaited, deadline());
  if (outcome == Waiter::Outcome::kArrived) return;
  if (outcome == Waiter::Outcome::kPoisoned) fail_poisoned();
  if (outcome == Waiter::Outcome::kInterrupted) fail_interrupted(Reporter(group_, board_, sequence_));
  std::vector<int> late;
  std::vector<int> lost;
  for (int i = 0; i < size(); ++i)
    if (awaited.is_late(i)) (waiter_.is_lost(i) ? lost : late).push_back(i);
  const Reporter report(group_, board_, sequence_);
  if (late.empty())
    break_group_once(FailureKind::kPeerLost, report.lost(lost), lost);
  else
    break_group_once(
        lost.empty() ? FailureKind::kTimeout : FailureKind::kPeerLost,
        report.missing(late, lost, waiter_.timeout(), std::bind_front(&LongWait::activity_of, &waiter_.long_wait())),
        lost);
  leave();
}

void Session::await_agreement(std::uint64_t sequence) {
  const WordSet words = line_sequences(sequence, {0, size()});
  const Waiter::Outcome outcome = waiter_.wait(words, sequence);
  if (outcome != Waiter::Outcome::kArrived) {
    const SeenCall last = board_.newest_call(rank());
    fail_waiting(outcome, AwaitedWords(words, sequence, 0),
                 fmt::format("waits for ranks that are {} or more calls behind its last call, {} at {}",
                             last.sequence - sequence + 1, describe(last), site_text(last.site)),
                 waiter_.timeout());
  }
  RETINUE_CRASH_POINT();
  check_calls_until(sequence);
}

/// A line that was written again is none of this call any more: its member has compared this one's line with its own
/// before it did that. So of each two members at least one compares. Counts are compared by those who take.
void Session::check_calls_until(std::uint64_t sequence) {
  for (; agreed_ < sequence; ++agreed_) {
    const std::uint64_t checked = agreed_ + 1;
    const std::uint64_t own_head = own_.lines[checked % kLines].head.load(std::memory_order_relaxed);
    for (int i = 0; i < size(); ++i) {
      const std::uint64_t head = board_.member(i).lines[checked % kLines].head.load(std::memory_order_relaxed);
      if (is_head_of(head, checked) && !heads_may_meet(head, own_head)) fail_mismatch(checked);
    }
  }
}

}  // namespace retinue
