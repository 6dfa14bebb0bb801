#include "collective/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collective/kernels.h"
#include "collective/report.h"
#include "collective/select.h"
#include "ipc/process_table.h"
#include "os/cpu_relax.h"
#include "retinue/base/deadline.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

/// A member posts at the end of its slice, which takes milliseconds; longer only if it is stopped.
constexpr auto kReleaseTime = std::chrono::seconds(10);

JobGroup checked(JobGroup group) {
  const int size = static_cast<int>(group.process_slots.size());
  if (group.memory == nullptr) throw UsageError(fmt::format("group \"{}\" has no job memory", group.name));
  if (group.rank < 0 || group.rank >= size)
    throw UsageError(fmt::format("group \"{}\": rank {} of {}", group.name, group.rank, size));
  for (const std::uint32_t slot : group.process_slots)
    if (slot >= kMaxProcesses) throw UsageError(fmt::format("group \"{}\": no process slot {}", group.name, slot));
  return group;
}

}  // namespace

Session::Session(JobGroup group, std::chrono::nanoseconds timeout)
    : group_(checked(std::move(group))),
      joined_(join_board(group_, JobDeadline::after(group_.memory->header(), timeout))),
      board_(joined_.board),
      own_(board_.member(group_.rank)),
      waiter_(board_, group_, timeout),
      scratch_(board_.size()) {
  try {
    publish({.shape = {.kind = CallKind::kOpen}, .site = {"", 0}});
    await_arrival();
    waiter_.count_cpus();
  } catch (...) {
    leave_board(group_, joined_);
    throw;
  }
}

Session::~Session() {
  leave_board(group_, joined_);
}

WordSet Session::line_sequences() const {
  return {.base = reinterpret_cast<const std::byte*>(&board_.member(0).lines[sequence_ % kLines].sequence),
          .first = 0,
          .last = size()};
}

void Session::check_usable() {
  if (failure_) std::rethrow_exception(failure_);
  if (board_.header().poison.state.load(std::memory_order_relaxed) != Poison::kNone) fail_poisoned();
}

std::uint8_t Session::stage_data(const Call& call) {
  const std::size_t bytes = call.shape.bytes();
  if (call.input == nullptr || bytes <= kInlineBytes) return kPrivateMemory;
  const std::uint8_t place = memory().contains(call.input, bytes) ? kInJobMemory : kPrivateMemory;
  if (!stages_first(call.shape, size(), place == kInJobMemory)) return place;
  stream_bytes(stage(rank()), call.input, bytes);
  return place | kStaged;
}

void Session::publish(const Call& call) {
  check_usable();
  ++sequence_;
  const std::size_t slot = sequence_ % kLines;
  Line& line = own_.lines[slot];
  const std::uint8_t place = stage_data(call);
  if (sites_[slot].file != call.site.file || sites_[slot].line != call.site.line) {
    write_site(line, call.site.file, call.site.line);
    sites_[slot] = {call.site.file, call.site.line};
  }
  waiter_.note_cpu();
  const std::size_t bytes = call.shape.bytes();
  std::uint64_t words[kInlineBytes / 8] = {};
  const bool is_inline = call.input != nullptr && bytes > 0 && bytes <= kInlineBytes;
  if (is_inline) std::memcpy(words, call.input, bytes);
  // From here on one store after the other: others spin on this cache line, and take it away in every pause.
  line.head.store(pack_head(call.shape, place, sequence_), std::memory_order_relaxed);
  line.count.store(call.shape.count, std::memory_order_release);
  if (is_inline) {
    for (std::size_t i = 0; i * 8 < bytes; ++i) line.inline_data[i].store(words[i], std::memory_order_relaxed);
  } else if ((place & kInJobMemory) != 0) {
    line.offset.store(memory().offset_of(call.input), std::memory_order_relaxed);
  }
  // Pairs with the acquire loads of the waiters, and with `parked`, see Waiter.
  line.sequence.store(sequence_, std::memory_order_seq_cst);
  waiter_.posted();
}

std::uint8_t Session::await_arrival() {
  if (failure_) std::rethrow_exception(failure_);
  const WordSet words = line_sequences();
  const Waiter::Outcome outcome = waiter_.wait(words, sequence_);
  if (outcome != Waiter::Outcome::kArrived) fail(outcome, words, sequence_);
  const Line& own = line(rank());
  const std::uint64_t own_head = own.head.load(std::memory_order_relaxed);
  const std::uint64_t own_count = own.count.load(std::memory_order_relaxed);
  std::uint64_t differences = 0;
  std::uint64_t common = kPlaceMask;
  for (int i = 0; i < size(); ++i) {
    const Line& other = line(i);
    const std::uint64_t head = other.head.load(std::memory_order_relaxed);
    differences |= ((head ^ own_head) & ~kPlaceMask) | (other.count.load(std::memory_order_relaxed) ^ own_count);
    common &= head;
  }
  if (differences != 0) fail_mismatch();
  const CallShape shape = unpack(own_head, own_count);
  if (shape.kind == CallKind::kBroadcast)  // Only the root contributes.
    common = line(static_cast<int>(shape.root)).head.load(std::memory_order_relaxed);
  return place_of(common);
}

WordSet Session::progress_words(int first, int last) const {
  return {.base = reinterpret_cast<const std::byte*>(&board_.member(0).progress), .first = first, .last = last};
}

void Session::await(std::uint64_t step, int first, int last) {
  const WordSet words = progress_words(first, last);
  const std::uint64_t target = sequence_ << kStepBits | step;
  const Waiter::Outcome outcome = waiter_.wait(words, target);
  if (outcome != Waiter::Outcome::kArrived) fail(outcome, words, target);
}

void Session::await_release(std::uint64_t step) {
  const WordSet words = progress_words(0, size());
  const std::uint64_t target = sequence_ << kStepBits | step;
  const Waiter::Outcome outcome = waiter_.wait(words, target);
  if (outcome == Waiter::Outcome::kArrived) return;
  waiter_.wait_for_living(words, target, JobDeadline::after(group_.memory->header(), kReleaseTime));
  fail(outcome, words, target);
}

void Session::abandon() {
  failure_ = std::make_exception_ptr(
      UsageError(fmt::format("group \"{}\": an asynchronous collective was begun and never finished", group_.name)));
}

void Session::fail(Waiter::Outcome outcome, const WordSet& words, std::uint64_t target) {
  if (outcome == Waiter::Outcome::kPoisoned) fail_poisoned();
  std::vector<int> late;
  std::vector<int> lost;
  for (int i = words.first; i < words.last; ++i) {
    if (words.word(i).load(std::memory_order_acquire) >= target) continue;
    late.push_back(i);
    if (waiter_.is_lost(i)) lost.push_back(i);
  }
  // Looked at after the members: who poisoned the group and then left must not be taken for the lost one.
  if (board_.header().poison.state.load(std::memory_order_acquire) != Poison::kNone) fail_poisoned();
  const Reporter report(group_, board_, sequence_);
  if (outcome == Waiter::Outcome::kLost) fail_with(FailureKind::kPeerLost, report.lost(lost), lost);
  fail_with(FailureKind::kTimeout, report.timed_out(late, waiter_.timeout()), {});
}

void Session::fail_mismatch() {
  fail_with(FailureKind::kMismatch, Reporter(group_, board_, sequence_).mismatch(), {});
}

void Session::fail_poisoned() {
  const Poison& poison = board_.header().poison;
  // Written within microseconds, unless its writer was killed meanwhile.
  const Deadline deadline = Deadline::after(std::chrono::milliseconds(100));
  while (poison.state.load(std::memory_order_acquire) != Poison::kWritten && !deadline.passed()) cpu_relax();
  if (poison.state.load(std::memory_order_acquire) != Poison::kWritten)
    throw_failure(FailureKind::kPeerLost,
                  fmt::format("group \"{}\": a member died while it reported a failure", group_.name), {});
  throw_failure(poison.kind, poison.text, {poison.ranks, poison.ranks + poison.rank_count});
}

void Session::fail_with(FailureKind kind, const std::string& text, const std::vector<int>& ranks) {
  Poison& poison = board_.header().poison;
  std::uint32_t state = Poison::kNone;
  if (poison.state.compare_exchange_strong(state, Poison::kWriting, std::memory_order_acq_rel)) {
    poison.kind = kind;
    poison.rank_count = static_cast<std::uint32_t>(std::min(ranks.size(), Poison::kMaxRanks));
    std::copy_n(ranks.begin(), poison.rank_count, poison.ranks);
    const std::size_t length = std::min(text.size(), sizeof poison.text - 1);
    std::memcpy(poison.text, text.data(), length);
    poison.text[length] = 0;
    poison.state.store(Poison::kWritten, std::memory_order_seq_cst);
    waiter_.ring_all();
  }
  throw_failure(kind, text, ranks);
}

void Session::throw_failure(FailureKind kind, const std::string& text, const std::vector<int>& ranks) {
  switch (kind) {
    case FailureKind::kPeerLost:
      failure_ = std::make_exception_ptr(PeerLost(text, ranks));
      break;
    case FailureKind::kMismatch:
      failure_ = std::make_exception_ptr(CollectiveMismatch(text));
      break;
    case FailureKind::kTimeout:
      failure_ = std::make_exception_ptr(TimeoutError(text));
      break;
  }
  std::rethrow_exception(failure_);
}

}  // namespace retinue
