#include "collective/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "collective/kernels.h"
#include "collective/report.h"
#include "ipc/process_table.h"
#include "os/cpu_relax.h"
#include "retinue/base/deadline.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

/// A member posts at the end of its slice, which takes milliseconds; longer only if it is stopped.
constexpr auto kReleaseTime = std::chrono::seconds(10);

/// Of little data the stores wait for their lines side by side, and the reader finds them in a cache: half the time of
/// streaming at 4 KiB. Beyond this it depends on what else the caches hold.
constexpr std::size_t kStoredPlainly = std::size_t{32} << 10;

void fill_stage(std::byte* stage, const void* data, std::size_t bytes) {
  (bytes <= kStoredPlainly ? copy_bytes : stream_bytes)(stage, data, bytes);
}

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
    publish({.what = {}, .pattern = pattern_of(CollectiveKind::kOpen), .shape = {.kind = CollectiveKind::kOpen}});
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

ReduceSources Session::reduce_sources(int count, ReduceOp op) {
  if (op == ReduceOp::kPremulSum)
    for (int i = 0; i < count; ++i)
      scratch_.factors[static_cast<std::size_t>(i)] =
          std::bit_cast<double>(line(i).inline_data[kFactorWord].load(std::memory_order_relaxed));
  return {.arrays = scratch_.sources.data(), .count = count, .factors = scratch_.factors.data()};
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
  const std::uint8_t uneven = call.what.uneven ? kUneven : 0;
  if (!call.gives || call.pattern.result == Pattern::Result::kNothing) return uneven;
  if (!call.what.inputs.empty()) return uneven | stage_parts(call);
  const std::size_t bytes = call.given_bytes(size());
  const bool nobody_takes = call.shape.kind == CollectiveKind::kGather && call.takes;
  if (bytes == 0 || nobody_takes) return uneven | kInJobMemory | kStaged;  // Wherever the others' are.
  if (!call.what.uneven && bytes <= line_room(call.shape.op)) return kPrivateMemory;
  const bool result_is_reached =
      call.shape.kind != CollectiveKind::kReduce || !call.takes || memory().contains(call.what.output, bytes);
  const bool in_job = !call.overwrites_itself && result_is_reached && memory().contains(call.what.input, bytes);
  const std::uint8_t place = uneven | (in_job ? kInJobMemory : kPrivateMemory);
  if (!stages_first(call.pattern, size(), bytes, in_job)) return place;
  fill_stage(stage(rank()), call.what.input, bytes);
  return place | kStaged;
}

std::uint8_t Session::stage_parts(const Call& call) {
  const auto aligned = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
  const std::size_t table_bytes = aligned(call.what.inputs.size() * sizeof(PartEntry));
  std::size_t bytes = 0;
  bool in_job = true;
  for (const ConstBytes& part : call.what.inputs) {
    bytes += aligned(part.size());
    in_job = in_job && (part.empty() || memory().contains(part.data(), part.size()));
  }
  const bool stages = stages_first(call.pattern, size(), table_bytes + bytes, in_job);
  auto* entry = reinterpret_cast<PartEntry*>(stage(rank()));
  std::size_t at = table_bytes;
  for (const ConstBytes& part : call.what.inputs) {
    *entry++ = {
        .bytes = part.size(), .offset = in_job && !part.empty() ? memory().offset_of(part.data()) : 0, .staged_at = at};
    if (stages && !part.empty()) fill_stage(stage(rank()) + at, part.data(), part.size());
    at += aligned(part.size());
  }
  return static_cast<std::uint8_t>(kListed | (in_job ? kInJobMemory : 0) | (stages ? kStaged : 0));
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
  const std::size_t bytes = call.given_bytes(size());
  std::uint64_t words[kInlineBytes / 8] = {};
  std::size_t used_words = 0;
  if (call.gives && call.what.input != nullptr && !call.what.uneven && bytes <= line_room(call.shape.op)) {
    std::memcpy(words, call.what.input, bytes);
    used_words = (bytes + 7) / 8;
  } else if (call.shape.kind == CollectiveKind::kReduce && call.takes && (place & kInJobMemory) != 0) {
    words[0] = memory().offset_of(call.what.output);
    used_words = 1;
  }
  if (call.shape.op == ReduceOp::kPremulSum) {
    words[kFactorWord] = std::bit_cast<std::uint64_t>(call.what.factor);
    used_words = kFactorWord + 1;
  }
  // From here on one store after the other: others spin on this cache line, and take it away in every pause.
  line.head.store(pack_head(call.shape, place, sequence_), std::memory_order_relaxed);
  line.count.store(call.shape.count, std::memory_order_release);
  for (std::size_t i = 0; i < used_words; ++i) line.inline_data[i].store(words[i], std::memory_order_relaxed);
  if ((place & (kInJobMemory | kListed)) == kInJobMemory && memory().contains(call.what.input, bytes))
    line.offset.store(memory().offset_of(call.what.input), std::memory_order_relaxed);
  // Pairs with the acquire loads of the waiters, and with `parked`, see Waiter.
  line.sequence.store(sequence_, std::memory_order_seq_cst);
  waiter_.posted();
}

std::uint64_t Session::largest_but(int rank) const {
  std::uint64_t largest = 0;
  for (int i = 0; i < size(); ++i)
    if (i != rank) largest = std::max(largest, line(i).count.load(std::memory_order_relaxed));
  return largest;
}

Arrival Session::await_arrival() {
  if (failure_) std::rethrow_exception(failure_);
  const WordSet words = line_sequences();
  const Waiter::Outcome outcome = waiter_.wait(words, sequence_);
  if (outcome != Waiter::Outcome::kArrived) fail(outcome, words, sequence_);
  const Line& own = line(rank());
  const std::uint64_t own_head = own.head.load(std::memory_order_relaxed);
  const std::uint64_t own_count = own.count.load(std::memory_order_relaxed);
  std::uint64_t differences = 0;
  std::uint64_t counts_differ = 0;
  std::uint64_t common = kPlaceMask;
  std::uint64_t any = 0;
  std::uint64_t largest = 0;
  for (int i = 0; i < size(); ++i) {
    const Line& other = line(i);
    const std::uint64_t head = other.head.load(std::memory_order_relaxed);
    const std::uint64_t count = other.count.load(std::memory_order_relaxed);
    differences |= (head ^ own_head) & ~kPlaceMask;
    counts_differ |= count ^ own_count;
    common &= head;
    any |= head;
    largest = std::max(largest, count);
  }
  const bool uneven = (place_of(any) & kUneven) != 0;
  if (differences != 0 || (counts_differ != 0 && !uneven)) fail_mismatch();
  const CallShape shape = unpack(own_head, own_count);
  if (uneven && shape.kind == CollectiveKind::kGather) largest = largest_but(static_cast<int>(shape.root));
  if (pattern_of(shape.kind).only_root_gives) {
    const Line& root = line(static_cast<int>(shape.root));
    common = root.head.load(std::memory_order_relaxed);
    largest = root.count.load(std::memory_order_relaxed);
  }
  return {.places = place_of(common), .uneven = uneven, .count = largest};
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

void Session::await_release(std::uint64_t step, int first, int last) {
  const WordSet words = progress_words(first, last);
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

void Session::check_living(int rank) {
  if (!waiter_.is_lost(rank)) return;
  // Looked at after the member: who poisoned the group and then left must not be taken for the lost one.
  if (board_.header().poison.state.load(std::memory_order_acquire) != Poison::kNone) {
    set_failure_from_poison();
  } else {
    break_group(FailureKind::kPeerLost, Reporter(group_, board_, sequence_).lost({rank}), {rank});
  }
  leave_after(1);
}

void Session::fail_sizes(int giver, std::size_t given, std::size_t wanted) {
  break_group(FailureKind::kMismatch, Reporter(group_, board_, sequence_).wrong_size(giver, given, wanted), {});
}

void Session::leave_after(std::uint64_t step) {
  post(step);
  waiter_.wait_for_living(progress_words(0, size()), sequence_ << kStepBits | step,
                          JobDeadline::after(group_.memory->header(), kReleaseTime));
  leave();
}

void Session::fail_poisoned() {
  set_failure_from_poison();
  leave();
}

void Session::set_failure_from_poison() {
  const Poison& poison = board_.header().poison;
  // Written within microseconds, unless its writer was killed meanwhile.
  const Deadline deadline = Deadline::after(std::chrono::milliseconds(100));
  while (poison.state.load(std::memory_order_acquire) != Poison::kWritten && !deadline.passed()) cpu_relax();
  if (poison.state.load(std::memory_order_acquire) == Poison::kWritten)
    set_failure(poison.kind, poison.text, {poison.ranks, poison.ranks + poison.rank_count});
  else
    set_failure(FailureKind::kPeerLost,
                fmt::format("group \"{}\": a member died while it reported a failure", group_.name), {});
}

void Session::fail_with(FailureKind kind, const std::string& text, const std::vector<int>& ranks) {
  break_group(kind, text, ranks);
  leave();
}

void Session::break_group(FailureKind kind, const std::string& text, const std::vector<int>& ranks) {
  tell(kind, text, ranks);
  set_failure(kind, text, ranks);
}

void Session::tell(FailureKind kind, const std::string& text, const std::vector<int>& ranks) {
  Poison& poison = board_.header().poison;
  std::uint32_t state = Poison::kNone;
  if (!poison.state.compare_exchange_strong(state, Poison::kWriting, std::memory_order_acq_rel)) return;
  poison.kind = kind;
  poison.rank_count = static_cast<std::uint32_t>(std::min(ranks.size(), Poison::kMaxRanks));
  std::copy_n(ranks.begin(), poison.rank_count, poison.ranks);
  const std::size_t length = std::min(text.size(), sizeof poison.text - 1);
  std::memcpy(poison.text, text.data(), length);
  poison.text[length] = 0;
  poison.state.store(Poison::kWritten, std::memory_order_seq_cst);
  waiter_.ring_all();
}

void Session::set_failure(FailureKind kind, const std::string& text, const std::vector<int>& ranks) {
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
}

}  // namespace retinue
