#include "ipc/ring/message_ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>

#include "ipc/memory/poller.h"
#include "ipc/memory/ring_owner.h"
#include "ipc/ring/ring_words.h"
#include "os/machine/memory.h"
#include "os/testing/crash_point.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

std::size_t slot_bytes_for(std::size_t space_bytes) {
  return space_bytes <= kWordBytes ? sizeof(WordSlot)
                                   : round_up(offsetof(WideSlot, space) + space_bytes, alignof(WideSlot));
}

/// State and message of a WordSlot in one step. ThreadSanitizer's own 16-byte operations are ones of a single process.
/// clang would inline it into a function that has no such instruction, and call a library then.
#if defined(__x86_64__)
__attribute__((target("cx16")))
#endif
__attribute__((noinline, no_sanitize("thread"))) bool
fill(WordSlot& slot, SlotState empty, SlotState full, std::uint64_t message) {
  using Both = unsigned __int128;
  const Both before = Both{slot.word.load(std::memory_order_relaxed)} << 64 | empty.word();
  const Both after = Both{message} << 64 | full.word();
  return __sync_bool_compare_and_swap(reinterpret_cast<Both*>(&slot), before, after);
}

/// Where what is behind the slots lies.
struct RingBytes {
  std::size_t tail;    ///< From the ring's start: the RingTail, as long as a slot.
  std::size_t deaths;  ///< From the tail's start.
};

RingBytes bytes_of(std::size_t capacity, std::size_t space_bytes) {
  const std::size_t slot_bytes = slot_bytes_for(space_bytes);
  return {sizeof(RingHeader) + slot_bytes * capacity, std::max(slot_bytes, sizeof(RingTail))};
}

}  // namespace

std::size_t MessageRing::bytes_for(const RingShape& shape) {
  // So that what is multiplied below is not too large.
  if (shape.capacity == 0 || shape.capacity >= RingPosition::kMostSlots)
    throw UsageError(
        fmt::format("a queue of capacity {}: it must be 1 to {}", shape.capacity, RingPosition::kMostSlots - 1));
  const RingBytes bytes = bytes_of(shape.capacity, shape.space_bytes);
  return bytes.tail + bytes.deaths + (shape.redelivers != 0 ? sizeof(std::uint64_t) * shape.capacity : 0);
}

void MessageRing::lay_out(JobMemory& memory, const BlockHandle& block, const RingShape& shape) {
  std::byte* const at = memory.at(block.offset);
  std::memset(at, 0, bytes_for(shape));
  auto* const header = new (at) RingHeader();
  header->magic = RingHeader::kMagic;
  header->type = shape.type;
  header->capacity = static_cast<std::uint32_t>(shape.capacity);
  header->slot_bytes = static_cast<std::uint32_t>(slot_bytes_for(shape.space_bytes));
  header->space_bytes = shape.space_bytes;
  header->is_joinable = shape.is_joinable;
  header->redelivers = shape.redelivers;
  header->max_deliveries = shape.max_deliveries;
  header->no_consumer_ns = shape.no_consumer_ns;
  static_assert(offsetof(RingTail, references) == offsetof(WideSlot, references));
  const bool has_words = shape.space_bytes <= kWordBytes;
  const std::size_t first_slot = has_words ? bytes_of(shape.capacity, shape.space_bytes).tail : sizeof(RingHeader);
  const std::uint32_t tail = has_words ? 0 : header->capacity;
  if (!has_words || shape.dead_letters)
    memory.set_reference_lists(
        block, {.first = static_cast<std::uint32_t>(first_slot + offsetof(WideSlot, references)),
                .stride = header->slot_bytes,
                .count = tail + 1,
                .capacity = has_words ? 1 : static_cast<std::uint32_t>(shape.space_bytes / sizeof(BlockHandle))});
  if (shape.dead_letters) {
    memory.set_references(block, tail, std::span(&shape.dead_letters, 1));
    header->dead_letters = shape.dead_letters;
  }
  // Whoever has messages in hand needs their slots' states to say so.
  if (shape.is_joinable != 0) header->get.user.store(RingUser::kEverybody, std::memory_order_relaxed);
}

MessageRing::MessageRing(JobMemory& memory, const BlockHandle& block)
    : memory_(memory),
      block_(block),
      header_(memory.at<RingHeader>(block.offset)),
      slots_(memory.at(block.offset) + sizeof(RingHeader)) {
  const bool is_ring = block.offset % alignof(RingHeader) == 0 && block.bytes >= sizeof(RingHeader) &&
                       header_->magic == RingHeader::kMagic;
  capacity_ = is_ring ? header_->capacity : 0;
  slot_bytes_ = is_ring ? header_->slot_bytes : 0;
  space_bytes_ = is_ring ? header_->space_bytes : 0;
  const bool has_space_for_payloads = space_bytes_ <= kWordBytes || space_bytes_ >= sizeof(BlockHandle);
  if (capacity_ == 0 || capacity_ >= RingPosition::kMostSlots || !has_space_for_payloads ||
      slot_bytes_ != slot_bytes_for(space_bytes_) || (block.bytes - sizeof(RingHeader)) / slot_bytes_ < capacity_)
    throw UsageError(fmt::format("the block at offset {} of job memory is not a queue", block.offset));
  constexpr std::uint32_t kMostAhead = 32;
  slots_ahead_ = std::min(kMostAhead, capacity_ / 4);
  has_words_ = space_bytes_ <= kWordBytes;
  const RingBytes bytes = bytes_of(capacity_, space_bytes_);
  if (header_->redelivers != 0) {
    if ((block.bytes - bytes.tail) < bytes.deaths + sizeof(std::uint64_t) * capacity_)
      throw UsageError(fmt::format("the queue at offset {} of job memory was overwritten", block.offset));
    deaths_ = memory.at<std::atomic<std::uint64_t>>(block.offset + bytes.tail + bytes.deaths);
  }
  if (!is_side_whole(header_->put) || !is_side_whole(header_->get))
    throw UsageError(fmt::format("the queue at offset {} of job memory was overwritten", block.offset));
}

/// Whether all its positions lie in the ring: they change step by step, and stay in there.
bool MessageRing::is_side_whole(const RingSide& side) const {
  const auto is_inside = [&](const std::atomic<std::uint64_t>& position) {
    return RingPosition{position.load(std::memory_order_relaxed)}.index() < capacity_;
  };
  const std::uint64_t user = side.user.load(std::memory_order_relaxed);
  return is_inside(side.hint) && std::all_of(std::begin(side.alone), std::end(side.alone), is_inside) &&
         (user == RingUser::kEverybody || RingUser::turn_of(user) < RingSide::kMostUsers);
}

bool MessageRing::change(std::uint32_t index, SlotState from, SlotState to) {
  std::uint64_t expected = from.word();
  return state_of(index).compare_exchange_strong(expected, to.word(), std::memory_order_seq_cst);
}

/// Where to go on from a hint that is laps behind: this slot's previous lap is over.
RingPosition MessageRing::after_lap(RingPosition at, SlotState seen) const {
  const auto laps = static_cast<std::uint64_t>(seen.laps_ahead_of(at.lap()));
  const RingPosition over{(at.lap() + laps - 1) << RingPosition::kIndexBits | at.index()};
  return over.next(capacity_);
}

/// What a slot means to a producer, where it is not simply empty.
MessageRing::Step MessageRing::step_to_put(RingPosition& at, SlotState seen) {
  const std::int64_t ahead = seen.laps_ahead_of(at.lap());
  if (ahead > 0) {
    at = after_lap(at, seen);
  } else if (ahead < 0) {
    return resolve(at.index(), seen) ? Step::kAgain : Step::kWait;
  } else if (seen.phase() == SlotPhase::kSealed) {
    return Step::kClosed;
  } else if (seen.phase() != SlotPhase::kEmpty) {
    at = at.next(capacity_);
  }
  return Step::kAgain;
}

/// The next place where the slot is as wanted; kAgain: found. The positions of lone users are exact: they find theirs
/// at once.
MessageRing::Step MessageRing::find(RingSide& side, Access access, RingPosition& at) {
  const bool puts = &side == &header_->put;
  const std::uint64_t user = side.user.load(std::memory_order_acquire);
  // The side may be another's by now, or everybody's.
  if (access == Access::kSolo && (user & ~RingUser::kTurns) != RingUser::self(memory_)) return Step::kAgain;
  auto& position = access == Access::kSolo ? side.alone[RingUser::turn_of(user)] : side.hint;
  const RingPosition start{position.load(std::memory_order_relaxed)};
  at = start;
  for (std::uint64_t left = longest_walk(); left > 0; --left) {
    const SlotState seen(state_of(at.index()).load(std::memory_order_seq_cst));
    if (seen == SlotState(at.lap(), puts ? SlotPhase::kEmpty : SlotPhase::kFull)) {
      // A lone user who doesn't find it where it goes on would look in vain there for ever.
      const bool is_there = access != Access::kSolo || at.value == start.value;
      return is_there || share(side) ? Step::kAgain : Step::kWait;
    }
    const Step step = puts ? step_to_put(at, seen) : step_to_take(at, seen);
    if (step != Step::kAgain) return step;
  }
  return Step::kWait;
}

RingResult MessageRing::try_put_word(std::uint64_t message) {
  for (;;) {
    const Access access = this->access(header_->put);
    if (access == Access::kLater) return RingResult::kWait;
    if (access == Access::kSolo && put_word_alone(message)) return RingResult::kDone;
    if (is_closed()) return RingResult::kClosed;
    RingPosition at;
    const Step step = find(header_->put, access, at);
    if (step != Step::kAgain) return step == Step::kWait ? RingResult::kWait : RingResult::kClosed;
    if (access == Access::kSolo) continue;  // It has become empty, or somebody takes the side.
    const SlotState empty(at.lap(), SlotPhase::kEmpty);
    RETINUE_CRASH_POINT();
#ifdef __SANITIZE_THREAD__
    state_of(at.index()).fetch_add(0, std::memory_order_release);  // So that it knows of what is published.
#endif
    if (!fill(word_slot(at.index()), empty, empty.with(SlotPhase::kFull), message)) continue;
    RETINUE_CRASH_POINT();
    header_->put.hint.store(at.next(capacity_).value, std::memory_order_relaxed);
    return RingResult::kDone;
  }
}

/// What a slot means to a consumer, where it is not simply full.
MessageRing::Step MessageRing::step_to_take(RingPosition& at, SlotState seen) {
  const std::int64_t ahead = seen.laps_ahead_of(at.lap());
  if (ahead > 0) {
    at = after_lap(at, seen);
    return Step::kAgain;
  }
  if (ahead < 0) return resolve(at.index(), seen) ? Step::kAgain : Step::kWait;
  switch (seen.phase()) {
    case SlotPhase::kEmpty:
      if (!is_closed() || (has_words_ && !share(header_->put))) return Step::kWait;
      RETINUE_CRASH_POINT();
      change(at.index(), seen, seen.with(SlotPhase::kSealed));  // Else a late put was first, and counts.
      return Step::kAgain;
    case SlotPhase::kSealed:
      return recover_dead_owners() ? Step::kWait : Step::kClosed;
    case SlotPhase::kWriting:
    case SlotPhase::kArriving:
      return resolve(at.index(), seen) ? Step::kAgain : Step::kWait;
    case SlotPhase::kTaken:
    case SlotPhase::kAbandoned:
      at = at.next(capacity_);
      return Step::kAgain;
    case SlotPhase::kFull:
      // To be delivered again: take_from_behind() has those. Else a writer was quicker than this look.
      if (seen.deaths() != 0) at = at.next(capacity_);
      return Step::kAgain;
  }
  throw UsageError(fmt::format("a slot of a queue has the unknown state {}: job memory was overwritten", seen.word()));
}

RingResult MessageRing::try_take_word(std::uint64_t& message) {
  for (;;) {
    const Access access = this->access(header_->get);
    if (access == Access::kLater) return RingResult::kWait;
    if (access == Access::kSolo && take_word_alone(message)) return RingResult::kDone;
    RingPosition at;
    const Step step = find(header_->get, access, at);
    if (step != Step::kAgain) return step == Step::kWait ? RingResult::kWait : RingResult::kClosed;
    if (access == Access::kSolo) continue;
    const SlotState full(at.lap(), SlotPhase::kFull);
    const std::uint64_t word = word_slot(at.index()).word.load(std::memory_order_relaxed);
    RETINUE_CRASH_POINT();
    if (!change(at.index(), full, full.emptied())) continue;
    // The slot had not changed since: the word was the message.
    RETINUE_CRASH_POINT();
    header_->get.hint.store(at.next(capacity_).value, std::memory_order_relaxed);
    message = word;
    return RingResult::kDone;
  }
}

bool MessageRing::take_at(std::uint32_t index, SlotState seen, TakenSlot& taken) {
  const SlotState in_hand = seen.with(SlotPhase::kTaken, own_owner(memory_));
  if (seen.deaths() != 0) note_deaths(index, seen);
  RETINUE_CRASH_POINT();
  if (!change(index, seen, in_hand)) return false;
  RETINUE_CRASH_POINT();
  taken = {index, in_hand.word()};
  return true;
}

RingResult MessageRing::look() {
  if (is_any_behind()) return RingResult::kDone;  // Or not: who takes will know.
  const RingSide& side = header_->get;
  const std::uint64_t user = side.user.load(std::memory_order_acquire);
  const bool is_alone = user != RingUser::kNobody && user != RingUser::kEverybody;
  RingPosition at{(is_alone ? side.alone[RingUser::turn_of(user) % RingSide::kMostUsers] : side.hint)
                      .load(std::memory_order_relaxed)};
  for (std::uint64_t left = longest_walk(); left > 0; --left) {
    const SlotState seen(state_of(at.index()).load(std::memory_order_seq_cst));
    if (seen == SlotState(at.lap(), SlotPhase::kFull)) return RingResult::kDone;
    const Step step = step_to_take(at, seen);
    if (step != Step::kAgain) return step == Step::kWait ? RingResult::kWait : RingResult::kClosed;
  }
  return RingResult::kWait;
}

RingResult MessageRing::try_take(TakenSlot& taken) {
  if (is_any_behind() && take_from_behind(taken)) return RingResult::kDone;
  RingPosition at{header_->get.hint.load(std::memory_order_relaxed)};
  for (std::uint64_t left = longest_walk(); left > 0; --left) {
    const SlotState seen(state_of(at.index()).load(std::memory_order_seq_cst));
    if (seen == SlotState(at.lap(), SlotPhase::kFull)) {
      if (!take_at(at.index(), seen, taken)) continue;
      header_->get.hint.store(at.next(capacity_).value, std::memory_order_relaxed);
      return RingResult::kDone;
    }
    const Step step = step_to_take(at, seen);
    if (step != Step::kAgain) return step == Step::kWait ? RingResult::kWait : RingResult::kClosed;
  }
  return RingResult::kWait;
}

void MessageRing::ring_pollers() const {
  RETINUE_CRASH_POINT();
  bool are_told = true;
  for (const auto& ticket : header_->pollers)
    if (const std::uint64_t listed = ticket.load(std::memory_order_seq_cst); listed != 0)
      are_told &= ring_poller(memory_, listed);
  if (!are_told) header_->not_empty.parked.store(1, std::memory_order_seq_cst);  // The next put tries again.
}

void MessageRing::close() {
  RETINUE_CRASH_POINT();
  header_->closed.store(1, std::memory_order_seq_cst);
  RETINUE_CRASH_POINT();
}

}  // namespace retinue
