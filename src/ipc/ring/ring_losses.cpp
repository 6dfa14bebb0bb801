// Messages that nobody gets any more: counted once each, whoever dies at it, and kept for who asks.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "base/char_field.h"
#include "ipc/memory/payload.h"
#include "ipc/ring/message_ring.h"
#include "ipc/ring/ring_consumers.h"
#include "ipc/ring/ring_try_lock.h"
#include "os/testing/crash_point.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr int kReasonShift = 32;

}  // namespace

/// A process that is reaped had the message in hand. False: another one writes a record just now.
bool MessageRing::lose(std::uint32_t index, SlotState seen, LostMessage::Reason reason) {
  RingLosses& losses = header_->losses;
  const RingTryLock lock(memory_, losses.holder);
  if (!lock) return false;
  end_loss();
  if (state_of(index).load(std::memory_order_seq_cst) != seen.word()) return true;
  const std::uint64_t before = losses.count.load(std::memory_order_relaxed);
  RETINUE_CRASH_POINT();
  keep_loss(losses.kept[before % RingLosses::kMostKept], index, seen, reason);
  losses.kept[before % RingLosses::kMostKept].stamp.store(before + 1, std::memory_order_release);
  losses.index.store(index, std::memory_order_relaxed);
  losses.taken.store(seen.word(), std::memory_order_relaxed);
  losses.before.store(before, std::memory_order_relaxed);
  RETINUE_CRASH_POINT();
  losses.is_pending.store(1, std::memory_order_release);
  end_loss();
  return true;
}

/// What a dead process may have begun without another loss after it.
bool MessageRing::resume_loss() {
  RingLosses& losses = header_->losses;
  if (losses.is_pending.load(std::memory_order_acquire) == 0) return false;
  const RingTryLock lock(memory_, losses.holder);
  if (lock) end_loss();
  return bool(lock);
}

/// Each step may be done a second time.
void MessageRing::end_loss() {
  RingLosses& losses = header_->losses;
  if (losses.is_pending.load(std::memory_order_acquire) == 0) return;
  const std::uint32_t index = losses.index.load(std::memory_order_relaxed) % capacity_;
  const SlotState taken(losses.taken.load(std::memory_order_relaxed));
  RETINUE_CRASH_POINT();
  if (state_of(index).load(std::memory_order_seq_cst) == taken.word()) {
    drop_what_is_left(index, taken);
    RETINUE_CRASH_POINT();
    change(index, taken, taken.emptied());
  }
  RETINUE_CRASH_POINT();
  losses.count.store(losses.before.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  RETINUE_CRASH_POINT();
  losses.is_pending.store(0, std::memory_order_release);
  RETINUE_CRASH_POINT();
}

void MessageRing::keep_loss(RingLoss& record, std::uint32_t index, SlotState seen, LostMessage::Reason reason) const {
  const ConsumerNote consumer = noted_consumer(*header_, seen.owner());
  std::uint64_t bytes = 0;
  std::span<const std::byte> text;
  try {
    text = beginning_of(index, bytes);
  } catch (const Error&) {
    // Its block is gone.
  }
  std::uint64_t words[RingLoss::kBeginning] = {};
  if (!text.empty()) std::memcpy(words, text.data(), std::min(text.size(), sizeof words));
  record.stamp.store(0, std::memory_order_seq_cst);
  const auto set = [](std::atomic<std::uint64_t>& word, std::uint64_t value) {
    word.store(value, std::memory_order_release);
  };
  set(record.number, seen.lap() * capacity_ + index + 1);
  set(record.bytes, bytes);
  set(record.deliveries, std::uint64_t{deaths_before(index, seen)} + 1);
  set(record.pid, static_cast<std::uint64_t>(consumer.pid()));
  set(record.rank_and_reason,
      static_cast<std::uint64_t>(reason) << kReasonShift | static_cast<std::uint32_t>(consumer.rank() + 1));
  for (std::size_t i = 0; i < std::size(words); ++i) set(record.beginning[i], words[i]);
}

/// The first bytes of the message in a slot that somebody has in hand. Errors: UsageError.
std::span<const std::byte> MessageRing::beginning_of(std::uint32_t index, std::uint64_t& bytes) const {
  const TakenSlot taken{index, 0};
  std::span<const std::byte> message;
  if (const std::optional<BlockHandle> payload = payload_in(taken)) {
    message = std::as_bytes(std::span(payload_bytes(memory_, *payload)));
  } else {
    message = message_in(taken);
  }
  bytes = message.size();
  return message.first(std::min(message.size(), RingLoss::kBeginning * sizeof(std::uint64_t)));
}

std::optional<LostMessage> MessageRing::lost_message(std::uint64_t count) const {
  const RingLoss& record = header_->losses.kept[(count - 1) % RingLosses::kMostKept];
  if (record.stamp.load(std::memory_order_acquire) != count) return std::nullopt;
  // Acquire, so that the stamp is read again after all of these.
  const auto get = [](const std::atomic<std::uint64_t>& word) { return word.load(std::memory_order_acquire); };
  const std::uint64_t rank_and_reason = get(record.rank_and_reason);
  LostMessage lost{.number = get(record.number),
                   .bytes = get(record.bytes),
                   .deliveries = get(record.deliveries),
                   .consumer_pid = static_cast<int>(get(record.pid)),
                   .consumer_rank = static_cast<int>(static_cast<std::uint32_t>(rank_and_reason)) - 1,
                   .reason = static_cast<LostMessage::Reason>(rank_and_reason >> kReasonShift)};
  lost.beginning = bytes_in(record.beginning).substr(0, lost.bytes);
  if (record.stamp.load(std::memory_order_relaxed) != count) return std::nullopt;
  return lost;
}

std::vector<LostMessage> MessageRing::lost_messages() const {
  const std::uint64_t count = lost();
  std::vector<LostMessage> found;
  for (std::uint64_t newer = std::min<std::uint64_t>(count, RingLosses::kMostKept); newer > 0; --newer)
    if (std::optional<LostMessage> one = lost_message(count - newer + 1)) found.push_back(std::move(*one));
  return found;
}

}  // namespace retinue
