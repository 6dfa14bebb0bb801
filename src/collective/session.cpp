#include "collective/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "collective/kernels.h"
#include "collective/lane.h"
#include "ipc/process_table.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

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

Session::Session(JobGroup group, const CommunicatorOptions& options)
    : group_(checked(std::move(group))),
      joined_(join_board(group_, JobDeadline::after(group_.memory->header(), options.timeout))),
      board_(joined_.board),
      own_(board_.member(group_.rank)),
      waiter_(board_, group_, options),
      scratch_(board_.size()) {
  try {
    publish({.what = {}, .pattern = pattern_of(CollectiveKind::kOpen), .shape = {.kind = CollectiveKind::kOpen}});
    await_arrival();
    end_call();
    waiter_.count_cpus();
  } catch (...) {
    leave_board(group_, joined_);
    throw;
  }
}

Session::~Session() {
  leave_board(group_, joined_);
}

Lane& Session::make_lane(int receiver) {
  JobMemory& memory = *group_.memory;
  const BlockHandle block = memory.allocate(Lane::bytes_for(size()));
  Lane& lane = *memory.at<Lane>(block.offset);
  std::memset(static_cast<void*>(&lane), 0, sizeof lane);
  // It lives as long as the board: its sender may end before the receiver has read all.
  memory.hand_over(block, joined_.block);
  board_.lane(rank(), receiver).store(block.offset, std::memory_order_release);
  return lane;
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
  if (is_poisoned()) fail_poisoned();
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
  is_in_call_ = true;
  const std::size_t slot = sequence_ % kLines;
  Line& line = own_.lines[slot];
  const std::uint8_t place = stage_data(call);
  sites_[slot].write(line.site, call.site);
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
  RETINUE_CRASH_POINT();
  // From here on one store after the other: others spin on this cache line, and take it away in every pause.
  line.head.store(pack_head(call.shape, place, sequence_), std::memory_order_relaxed);
  line.count.store(call.shape.count, std::memory_order_release);
  for (std::size_t i = 0; i < used_words; ++i) line.inline_data[i].store(words[i], std::memory_order_relaxed);
  if ((place & (kInJobMemory | kListed)) == kInJobMemory && memory().contains(call.what.input, bytes))
    line.offset.store(memory().offset_of(call.what.input), std::memory_order_relaxed);
  RETINUE_CRASH_POINT();
  // Pairs with the acquire loads of the waiters, and with `parked`, see Waiter.
  line.sequence.store(sequence_, std::memory_order_seq_cst);
  RETINUE_CRASH_POINT();
  waiter_.posted();
}

std::uint64_t Session::largest_but(int rank) const {
  std::uint64_t largest = 0;
  for (int i = 0; i < size(); ++i)
    if (i != rank) largest = std::max(largest, line(i).count.load(std::memory_order_relaxed));
  return largest;
}

Arrival Session::await_arrival() {
  if (failure_) leave();  // By a message since this call was begun.
  const WordSet words = line_sequences();
  const Waiter::Outcome outcome = waiter_.wait(words, sequence_);
  if (outcome != Waiter::Outcome::kArrived) fail(outcome, words, sequence_);
  RETINUE_CRASH_POINT();
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
  RETINUE_CRASH_POINT();
}

void Session::enter() {
  RETINUE_CRASH_POINT();
  // Either this member sees the other's failed call, or that one, looking whether it may leave, sees this store.
  own_.progress.store(sequence_ << kStepBits, std::memory_order_seq_cst);
  if (has_failed_member()) fail_poisoned();
  RETINUE_CRASH_POINT();
}

void Session::await_release(int first, int last) {
  await(1, first, last);
  if (has_failed_member()) fail_poisoned();  // Who failed inside posted all the same.
}

}  // namespace retinue
