// Messages on their way to a dead-letter queue. At each moment one of the two rings has the message, whoever dies at
// it.
#include <algorithm>
#include <cstring>
#include <optional>

#include "ipc/ring/message_ring.h"
#include "ipc/ring/ring_bell.h"
#include "ipc/ring/ring_try_lock.h"
#include "os/testing/crash_point.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

/// Whether the message is ended in the ring that it comes from: its slot is no longer in the hand of the dead one. A
/// ring that is gone cannot deliver it either.
bool is_committed(const JobMemory& memory, const RingArrival& arrival) {
  const BlockHandle from = arrival.from;
  const std::uint64_t at = arrival.at.load(std::memory_order_relaxed);
  if (!memory.is_held(from)) return true;
  if (from.bytes < sizeof(std::uint64_t) || at % sizeof(std::uint64_t) != 0 || at < from.offset ||
      at - from.offset > from.bytes - sizeof(std::uint64_t))
    return true;
  const auto& state = *memory.at<const std::atomic<std::uint64_t>>(at);
  return state.load(std::memory_order_seq_cst) != arrival.taken.load(std::memory_order_relaxed);
}

void note_arrival(RingArrival& arrival, std::uint32_t index, SlotState arriving) {
  arrival.index.store(index, std::memory_order_relaxed);
  arrival.arriving.store(arriving.word(), std::memory_order_relaxed);
  RETINUE_CRASH_POINT();
  arrival.is_noted.store(1, std::memory_order_release);
  RETINUE_CRASH_POINT();
}

}  // namespace

/// None where it can take none of this ring's messages.
std::optional<MessageRing> MessageRing::dead_letter_ring() const {
  const BlockHandle handle = header_->dead_letters;
  try {
    if (!memory_.is_held(handle)) return std::nullopt;
    MessageRing ring(memory_, handle);
    const bool is_fit = ring.has_words_ == has_words_ && ring.space_bytes_ >= space_bytes_;
    return is_fit ? std::optional(ring) : std::nullopt;
  } catch (const UsageError&) {
    return std::nullopt;  // Job memory was overwritten.
  }
}

/// False: not now.
bool MessageRing::move_to_dead_letters(std::uint32_t index, SlotState seen) {
  std::optional<MessageRing> to = dead_letter_ring();
  if (!to) return lose(index, seen, LostMessage::Reason::kDeadLettersFailed);
  RingArrival& arrival = to->header_->arrival;
  const RingTryLock lock(memory_, arrival.holder);
  if (!lock) return false;
  // Of one that died at it: the message may be half gone.
  if (header_->losses.is_pending.load(std::memory_order_acquire) != 0) return resume_loss();
  to->end_arrival();
  if (state_of(index).load(std::memory_order_seq_cst) != seen.word()) return true;
  if (to->has_words_ && !to->share(to->header_->put)) return false;
  SlotState writing(0);
  RingResult result;
  WideSlot* const slot = to->claim(writing, result);
  if (slot == nullptr && result == RingResult::kClosed)
    return lose(index, seen, LostMessage::Reason::kDeadLettersClosed);
  if (slot == nullptr) return to->is_full() && lose(index, seen, LostMessage::Reason::kDeadLettersFull);
  try {
    to->fill_from(*slot, writing, *this, index);
  } catch (const TimeoutError&) {
    return false;  // Somebody stands still in the block table.
  } catch (const Error&) {
    return lose(index, seen, LostMessage::Reason::kDeadLettersFailed);
  }
  const std::uint32_t there = to->index_of(*slot);
  const SlotState arriving = writing.with(SlotPhase::kArriving, writing.owner());
  arrival.from = block_;
  arrival.at.store(memory_.offset_of(&state_of(index)), std::memory_order_relaxed);
  arrival.taken.store(seen.word(), std::memory_order_relaxed);
  note_arrival(arrival, there, arriving);
  const SlotState ended = seen.with(SlotPhase::kAbandoned, writing.owner());
  // Not for a process that was taken for dead meanwhile.
  const bool is_there = to->change(there, writing, arriving);
  RETINUE_CRASH_POINT();
  const bool is_ended = is_there && change(index, seen, ended);
  RETINUE_CRASH_POINT();
  if (is_ended) {
    to->publish_arrival(there, arriving, arriving.with(SlotPhase::kFull));
    drop_what_is_left(index, ended);
    RETINUE_CRASH_POINT();
    change(index, ended, ended.emptied());
    RETINUE_CRASH_POINT();
    return true;
  }
  arrival.is_noted.store(0, std::memory_order_release);
  to->drop_what_is_left(there, arriving);
  to->change(there, arriving, arriving.emptied());
  return true;
}

/// Writes a message that a dead process had in hand there, and what it refers to; that ring keeps its own until it has
/// ended the message. Gives the slot back where it fails.
void MessageRing::fill_from(WideSlot& slot, SlotState writing, const MessageRing& from, std::uint32_t index) {
  if (has_words_) {
    word_slot(index_of(slot))
        .word.store(from.word_slot(index).word.load(std::memory_order_relaxed), std::memory_order_relaxed);
    return;
  }
  WideSlot& old = from.wide_slot(index);
  const TakenSlot taken{index, 0};
  const std::optional<BlockHandle> payload = from.payload_in(taken);
  std::span<const std::byte> message;
  std::span<const BlockHandle> references;
  try {
    if (!payload) message = from.message_in(taken);
  } catch (...) {
    undo_claim(slot, writing);
    throw;
  }
  // A payload stays that ring's, and is referred to here: its handle lies where payload_in() looks for
  // it.
  references = payload ? std::span(&*payload, 1) : std::span(old.references.carried(), old.references.count);
  if (!references.empty() || slot.references.count != 0) refer(slot, writing, references);
  slot.bytes = payload ? WideSlot::kInPayload : message.size();
  if (!message.empty()) std::memcpy(slot.space + references.size_bytes(), message.data(), message.size());
}

/// What a dead process had begun: the last step, or back. Each may be done a second time.
void MessageRing::end_arrival() {
  RingArrival& arrival = header_->arrival;
  if (arrival.is_noted.load(std::memory_order_acquire) == 0) return;
  const std::uint32_t index = arrival.index.load(std::memory_order_relaxed) % capacity_;
  const SlotState arriving(arrival.arriving.load(std::memory_order_relaxed));
  if (state_of(index).load(std::memory_order_seq_cst) == arriving.word()) {
    const bool is_there = is_committed(memory_, arrival);
    const SlotState back = arriving.with(SlotPhase::kAbandoned, arriving.owner());
    publish_arrival(index, arriving, is_there ? arriving.with(SlotPhase::kFull) : back);
  } else {
    arrival.is_noted.store(0, std::memory_order_release);
  }
}

void MessageRing::publish_arrival(std::uint32_t index, SlotState arriving, SlotState next) {
  RETINUE_CRASH_POINT();
  change(index, arriving, next);
  RETINUE_CRASH_POINT();
  header_->arrival.is_noted.store(0, std::memory_order_release);
  RETINUE_CRASH_POINT();
  if (ring(header_->not_empty)) ring_pollers();
}

bool MessageRing::resolve_arriving(std::uint32_t index, SlotState seen) {
  const RingTryLock lock(memory_, header_->arrival.holder);
  if (!lock) return false;
  end_arrival();
  // What nobody noted was written over.
  change(index, seen, seen.with(SlotPhase::kAbandoned, seen.owner()));
  return true;
}

}  // namespace retinue
