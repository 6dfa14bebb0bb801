// Messages in slots that change in more than one step.
#include <fmt/format.h>

#include <cstring>

#include "ipc/memory/ring_owner.h"
#include "ipc/ring/message_ring.h"
#include "os/testing/crash_point.h"
#include "retinue/base/error.h"

namespace retinue {

/// The next empty slot, with this process as its writer; nullptr: `result` says why not.
WideSlot* MessageRing::claim(SlotState& writing, RingResult& result) {
  result = RingResult::kClosed;
  if (is_closed()) return nullptr;
  RingPosition at{header_->put.hint.load(std::memory_order_relaxed)};
  for (std::uint64_t left = longest_walk(); left > 0; --left) {
    WideSlot& slot = wide_slot(at.index());
    const SlotState seen(slot.state.load(std::memory_order_seq_cst));
    if (seen == SlotState(at.lap(), SlotPhase::kEmpty)) {
      writing = seen.with(SlotPhase::kWriting, own_owner(memory_));
      RETINUE_CRASH_POINT();
      if (!change(at.index(), seen, writing)) continue;
      RETINUE_CRASH_POINT();
      header_->put.hint.store(at.next(capacity_).value, std::memory_order_relaxed);
      return &slot;
    }
    const Step step = step_to_put(at, seen);
    if (step == Step::kAgain) continue;
    if (step == Step::kWait) result = RingResult::kWait;
    return nullptr;
  }
  result = RingResult::kWait;
  return nullptr;
}

/// Fails only in a process that was taken for dead while a thread of it went on.
RingResult MessageRing::publish(WideSlot& slot, SlotState writing) {
  std::uint64_t expected = writing.word();
  RETINUE_CRASH_POINT();
  const bool is_published =
      slot.state.compare_exchange_strong(expected, writing.with(SlotPhase::kFull).word(), std::memory_order_seq_cst);
  RETINUE_CRASH_POINT();
  return is_published ? RingResult::kDone : RingResult::kClosed;
}

RingResult MessageRing::try_put(std::span<const std::byte> message, std::span<const BlockHandle> references) {
  SlotState writing(0);
  RingResult result;
  WideSlot* const slot = claim(writing, result);
  if (slot == nullptr) return result;
  slot->bytes = message.size();
  if (!references.empty() || slot->references.count != 0) refer(*slot, writing, references);
  if (!message.empty()) std::memcpy(slot->space + references.size_bytes(), message.data(), message.size());
  return publish(*slot, writing);
}

/// In place of what a consumer could not let go of. Gives the slot back where it fails.
void MessageRing::refer(WideSlot& slot, SlotState writing, std::span<const BlockHandle> references) {
  RETINUE_CRASH_POINT();
  try {
    memory_.set_references(block_, index_of(slot), references);
  } catch (...) {
    undo_claim(slot, writing);
    throw;
  }
}

void MessageRing::undo_claim(WideSlot& slot, SlotState writing) {
  std::uint64_t expected = writing.word();
  slot.state.compare_exchange_strong(expected, writing.emptied().word(), std::memory_order_seq_cst);
}

RingResult MessageRing::try_put_payload(const BlockHandle& payload) {
  SlotState writing(0);
  RingResult result;
  WideSlot* const slot = claim(writing, result);
  if (slot == nullptr) return result;
  if (slot->references.count != 0) refer(*slot, writing, {});
  std::memcpy(slot->space, &payload, sizeof payload);
  RETINUE_CRASH_POINT();
  slot->bytes = WideSlot::kInPayload;
  RETINUE_CRASH_POINT();
  try {
    memory_.hand_over(payload, block_);  // The sender may be gone before anybody takes the message.
  } catch (...) {
    undo_claim(*slot, writing);
    throw;
  }
  return publish(*slot, writing);
}

std::span<const std::byte> MessageRing::message_in(const TakenSlot& taken) const {
  if (has_words_) return std::as_bytes(std::span(&word_slot(taken.index).word, 1));
  const WideSlot& slot = wide_slot(taken.index);
  const std::uint64_t before = slot.reference_bytes();
  const std::uint64_t bytes = slot.bytes;
  if (before > space_bytes_ || bytes > space_bytes_ - before)
    throw UsageError(
        fmt::format("a queue has a message of {} + {} bytes in a slot of {} bytes: job memory was overwritten", before,
                    bytes, space_bytes_));
  return {slot.space + before, bytes};
}

std::optional<BlockHandle> MessageRing::payload_in(const TakenSlot& taken) const {
  const WideSlot& slot = wide_slot(taken.index);
  if (has_words_ || slot.bytes != WideSlot::kInPayload) return std::nullopt;
  BlockHandle payload;
  std::memcpy(&payload, slot.space, sizeof payload);
  return payload;
}

bool MessageRing::finish(const TakenSlot& taken) {
  const SlotState in_hand(taken.state);
  const bool is_in_payload = !has_words_ && wide_slot(taken.index).bytes == WideSlot::kInPayload;
  if (is_in_payload || (!has_words_ && wide_slot(taken.index).references.count != 0)) {
    // From here on nobody gets it again.
    wide_slot(taken.index).bytes = is_in_payload ? WideSlot::kPayloadDone : WideSlot::kReferencesDone;
    RETINUE_CRASH_POINT();
    drop_what_is_left(taken.index, in_hand);
  }
  RETINUE_CRASH_POINT();
  const bool is_mine = change(taken.index, in_hand, in_hand.emptied());
  RETINUE_CRASH_POINT();
  return is_mine;
}

}  // namespace retinue
