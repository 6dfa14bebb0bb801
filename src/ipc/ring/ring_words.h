#pragma once

#include "ipc/ring/message_ring.h"
#include "os/testing/crash_point.h"

/// The shortest way of a word in and out of a ring: for a thread that is alone on its side, without atomic changes.
namespace retinue {

/// Announces by its position before it changes the slot, and only then looks whose the side is: either this thread sees
/// that somebody takes the side away, or that one, after its heavy barrier, sees the position.
inline bool MessageRing::put_word_alone(std::uint64_t message) {
  RingSide& side = header_->put;
  const std::uint64_t user = side.user.load(std::memory_order_acquire);
  if (!RingUser::is_self(memory_, user) || is_closed()) return false;
  std::atomic<std::uint64_t>& position = side.alone[RingUser::turn_of(user)];
  const RingPosition at{position.load(std::memory_order_relaxed)};
  const SlotState empty(at.lap(), SlotPhase::kEmpty);
  WordSlot& slot = word_slot(at.index());
  if (slot.state.load(std::memory_order_acquire) != empty.word()) return false;
  RETINUE_CRASH_POINT();
  const RingPosition next = at.next(capacity_);
  position.store(next.value, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  RETINUE_CRASH_POINT();
  if (side.user.load(std::memory_order_relaxed) != user) [[unlikely]] {
    position.store(at.value, std::memory_order_release);
    return false;
  }
  prefetch(slot, next);
  slot.word.store(message, std::memory_order_relaxed);
  RETINUE_CRASH_POINT();
  slot.state.store(empty.with(SlotPhase::kFull).word(), std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // Who wakes sleepers looks after this: see_solo_users().
  RETINUE_CRASH_POINT();
  return true;
}

inline bool MessageRing::take_word_alone(std::uint64_t& message) {
  RingSide& side = header_->get;
  const std::uint64_t user = side.user.load(std::memory_order_acquire);
  if (!RingUser::is_self(memory_, user)) return false;
  std::atomic<std::uint64_t>& position = side.alone[RingUser::turn_of(user)];
  const RingPosition at{position.load(std::memory_order_relaxed)};
  const SlotState full(at.lap(), SlotPhase::kFull);
  WordSlot& slot = word_slot(at.index());
  if (slot.state.load(std::memory_order_acquire) != full.word()) return false;
  RETINUE_CRASH_POINT();
  const RingPosition next = at.next(capacity_);
  position.store(next.value, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  RETINUE_CRASH_POINT();
  if (side.user.load(std::memory_order_relaxed) != user) [[unlikely]] {
    position.store(at.value, std::memory_order_release);
    return false;
  }
  prefetch(slot, next);
  message = slot.word.load(std::memory_order_relaxed);
  RETINUE_CRASH_POINT();
  slot.state.store(full.emptied().word(), std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  RETINUE_CRASH_POINT();
  return true;
}

}  // namespace retinue
