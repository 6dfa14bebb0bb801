// What dead processes left in a ring, and looks at all of it.
#include <algorithm>
#include <cstring>

#include "ipc/memory/ring_owner.h"
#include "ipc/ring/message_ring.h"
#include "ipc/ring/ring_bell.h"
#include "os/testing/crash_point.h"
#include "retinue/base/error.h"

namespace retinue {

/// The ring lets go of what the message in the slot refers to, and of its payload. A handle that is stale, or was never
/// written whole, names none of its payloads, so that this does no harm a second time.
void MessageRing::drop_references(std::uint32_t index, SlotState seen) {
  if (has_words_) return;
  const WideSlot& slot = wide_slot(index);
  RETINUE_CRASH_POINT();
  if (slot.references.count != 0) memory_.clear_references(block_, index, slot.state, seen.word());
  if (slot.bytes != WideSlot::kInPayload && slot.bytes != WideSlot::kPayloadDone) return;
  BlockHandle payload;
  std::memcpy(&payload, slot.space, sizeof payload);
  RETINUE_CRASH_POINT();
  // Another may have brought the slot in order meanwhile; what was read is then a later message's.
  if (slot.state.load(std::memory_order_seq_cst) == seen.word()) memory_.take_from_holder(payload, block_);
}

/// Brings the slot of a dead process in order; false if there is nothing to do for it, or not yet.
bool MessageRing::resolve(std::uint32_t index, SlotState seen) {
  switch (seen.phase()) {
    case SlotPhase::kWriting:
      if (!owner_is_gone(memory_, seen.owner())) return false;
      // Consumers may pass it now. It is cleared and used again when no thread of the owner can write into it any more,
      // or still bring its message to an end.
      RETINUE_CRASH_POINT();
      change(index, seen, seen.with(SlotPhase::kAbandoned, seen.owner()));
      return true;
    case SlotPhase::kAbandoned:
      if (!owner_is_reaped(memory_, seen.owner())) return false;
      drop_references(index, seen);
      RETINUE_CRASH_POINT();
      change(index, seen, seen.emptied());
      return true;
    case SlotPhase::kTaken:
      return owner_is_reaped(memory_, seen.owner()) && resolve_taken(index, seen);
    case SlotPhase::kArriving:
      return owner_is_reaped(memory_, seen.owner()) && resolve_arriving(index, seen);
    default:
      return false;
  }
}

bool MessageRing::resolve_taken(std::uint32_t index, SlotState seen) {
  const std::uint64_t bytes = has_words_ ? 0 : wide_slot(index).bytes;
  if (bytes == WideSlot::kPayloadDone || bytes == WideSlot::kReferencesDone) {
    drop_references(index, seen);
    RETINUE_CRASH_POINT();
    change(index, seen, seen.emptied());
    return true;
  }
  if (deaths_ == nullptr) return lose(index, seen, LostMessage::Reason::kConsumerDied);
  const std::uint32_t deaths = std::min(deaths_before(index, seen) + 1, SlotState::kMostDeaths);
  if (header_->max_deliveries == 0 || deaths < header_->max_deliveries) {
    redeliver(index, seen, deaths);
    return true;
  }
  if (header_->dead_letters) return move_to_dead_letters(index, seen);
  return lose(index, seen, LostMessage::Reason::kMaxDeliveries);
}

void MessageRing::redeliver(std::uint32_t index, SlotState seen, std::uint32_t deaths) {
  RETINUE_CRASH_POINT();
  // Before the message is there: to look for it in vain costs little.
  std::uint64_t count = header_->behind.load(std::memory_order_seq_cst);
  while (!header_->behind.compare_exchange_weak(count, (count + 2) | 1, std::memory_order_seq_cst)) continue;
  RETINUE_CRASH_POINT();
  change(index, seen, seen.with(SlotPhase::kFull, deaths));
  RETINUE_CRASH_POINT();
  if (ring(header_->not_empty)) ring_pollers();  // Whoever found it may want to put.
}

/// How many consumers had died with the message before the one who has it in hand.
std::uint32_t MessageRing::deaths_before(std::uint32_t index, SlotState seen) const {
  if (deaths_ == nullptr) return 0;
  const SlotState noted(deaths_[index].load(std::memory_order_seq_cst));
  return noted.lap() == seen.lap() ? noted.deaths() : 0;
}

/// Before who takes the message overwrites the number with its name. Who comes late has an old one.
void MessageRing::note_deaths(std::uint32_t index, SlotState full) {
  if (deaths_ == nullptr) return;
  std::uint64_t word = deaths_[index].load(std::memory_order_seq_cst);
  const auto is_older = [&] {
    const std::int64_t ahead = full.laps_ahead_of(SlotState(word).lap());
    return ahead > 0 || (ahead == 0 && full.deaths() > SlotState(word).deaths());
  };
  while (is_older() && !deaths_[index].compare_exchange_weak(word, full.word(), std::memory_order_seq_cst)) continue;
}

/// For slots that must not wait: what cannot be let go of now goes with the queue.
void MessageRing::drop_what_is_left(std::uint32_t index, SlotState seen) noexcept {
  try {
    drop_references(index, seen);
  } catch (const Error&) {
    // Somebody stands still in the block table.
  }
}

/// A message that was taken before, by a process that died with it: the hint may have passed it.
bool MessageRing::take_from_behind(TakenSlot& taken) {
  const std::uint64_t count = header_->behind.load(std::memory_order_seq_cst);
  bool is_any = false;
  for (std::uint32_t index = 0; index < capacity_; ++index) {
    const SlotState seen(state_of(index).load(std::memory_order_seq_cst));
    // Somebody may be about to make it full again, having counted it.
    if (seen.phase() == SlotPhase::kTaken && owner_is_reaped(memory_, seen.owner())) is_any = true;
    if (seen.phase() != SlotPhase::kFull || seen.deaths() == 0) continue;
    is_any = true;
    if (take_at(index, seen, taken)) return true;
  }
  // Only where no further one was counted meanwhile.
  std::uint64_t expected = count;
  if (!is_any) header_->behind.compare_exchange_strong(expected, count & ~std::uint64_t{1}, std::memory_order_seq_cst);
  return false;
}

/// At the end of a closed queue: whether a dead process still had a message in hand, which comes again or is lost.
bool MessageRing::recover_dead_owners() {
  bool is_any = is_any_behind();
  for (std::uint32_t index = 0; index < capacity_; ++index) {
    const SlotState seen(state_of(index).load(std::memory_order_seq_cst));
    if (seen.phase() != SlotPhase::kTaken || !owner_is_gone(memory_, seen.owner())) continue;
    resolve(index, seen);
    is_any = true;
  }
  return is_any;
}

bool MessageRing::sweep(std::uint32_t first, std::uint32_t count) {
  bool has_changed = resume_loss();
  for (std::uint32_t i = 0; i < std::min(count, capacity_); ++i) {
    const std::uint32_t index = (first + i) % capacity_;
    has_changed |= resolve(index, SlotState(state_of(index).load(std::memory_order_seq_cst)));
  }
  return has_changed;
}

bool MessageRing::has_message() const {
  const RingPosition at{header_->get.hint.load(std::memory_order_relaxed)};
  return SlotState(state_of(at.index()).load(std::memory_order_seq_cst)).phase() == SlotPhase::kFull || is_any_behind();
}

bool MessageRing::has_space() const {
  const RingPosition at{header_->put.hint.load(std::memory_order_relaxed)};
  return state_of(at.index()).load(std::memory_order_seq_cst) == SlotState(at.lap(), SlotPhase::kEmpty).word();
}

std::size_t MessageRing::size() const {
  std::size_t count = 0;
  for (std::uint32_t index = 0; index < capacity_; ++index)
    count += SlotState(state_of(index).load(std::memory_order_acquire)).phase() == SlotPhase::kFull ? 1 : 0;
  return count;
}

bool MessageRing::is_full() const {
  for (std::uint32_t index = 0; index < capacity_; ++index) {
    const SlotPhase phase = SlotState(state_of(index).load(std::memory_order_acquire)).phase();
    if (phase == SlotPhase::kEmpty) return false;
  }
  return true;
}

/// The sum of all state words, if no slot has a message that is not done.
std::optional<std::uint64_t> MessageRing::sum_if_finished() const {
  std::uint64_t sum = 0;
  for (std::uint32_t index = 0; index < capacity_; ++index) {
    const SlotState seen(state_of(index).load(std::memory_order_seq_cst));
    const SlotPhase phase = seen.phase();
    if (phase != SlotPhase::kEmpty && phase != SlotPhase::kSealed && phase != SlotPhase::kAbandoned)
      return std::nullopt;
    sum += seen.word();
  }
  return sum;
}

/// Who has a message in hand may put another one into a slot that was looked at already. Words only grow: two equal
/// sums mean that nothing happened between.
bool MessageRing::is_finished() const {
  std::optional<std::uint64_t> sum = sum_if_finished();
  while (sum) {
    const std::optional<std::uint64_t> again = sum_if_finished();
    if (again == sum) return true;
    sum = again;
  }
  return false;
}

}  // namespace retinue
