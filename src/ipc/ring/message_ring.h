#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ipc/ring/ring_layout.h"
#include "ipc/ring/ring_shape.h"
#include "ipc/ring/ring_user.h"
#include "os/machine/prefetch.h"
#include "retinue/ipc/block_handle.h"
#include "retinue/ipc/job_memory.h"
#include "retinue/ipc/queue_base.h"

namespace retinue {

/// A ring for messages of many producers and many consumers in a block of job memory; none of its functions waits.
///
/// Any process may be killed at any instruction. A slot's state word names who writes into it or has it in hand, so
/// whoever meets a slot of a dead process brings it in order. Counters are hints: who comes late to one walks on from
/// it, slot by slot. Messages of one producer keep their order.
///
/// Threads: all functions, from any thread of any process of the job.
class MessageRing {
 public:
  /// Bytes that a ring of this shape needs. Errors: UsageError for one that cannot be.
  static std::size_t bytes_for(const RingShape& shape);
  /// Makes an empty ring of a block.
  static void lay_out(JobMemory& memory, const BlockHandle& block, const RingShape& shape);
  /// The ring in a block. Errors: UsageError if there is none.
  MessageRing(JobMemory& memory, const BlockHandle& block);

  RingHeader& header() const noexcept { return *header_; }
  const BlockHandle& block() const noexcept { return block_; }
  bool has_words() const noexcept { return has_words_; }
  std::uint32_t capacity() const noexcept { return capacity_; }
  std::uint32_t space_bytes() const noexcept { return space_bytes_; }

  /// For rings of words.
  RingResult try_put_word(std::uint64_t message);
  /// Without having it in hand: it is taken, or still there.
  RingResult try_take_word(std::uint64_t& message);

  /// The same for a thread that is known to be alone on its side: false, and nothing has changed, in every other case.
  /// Defined in ring_words.h.
  bool put_word_alone(std::uint64_t message);
  bool take_word_alone(std::uint64_t& message);

  /// For the other rings: at most space_bytes, of which each block that the message refers to takes a BlockHandle's.
  RingResult try_put(std::span<const std::byte> message, std::span<const BlockHandle> references = {});
  /// A message in a block that this process holds once; the ring holds it then. Not kDone: it is the caller's still.
  RingResult try_put_payload(const BlockHandle& payload);
  /// What a take would find.
  RingResult look();
  /// For all rings.
  RingResult try_take(TakenSlot& taken);
  /// The message itself, or the payload that has it.
  std::span<const std::byte> message_in(const TakenSlot& taken) const;
  std::optional<BlockHandle> payload_in(const TakenSlot& taken) const;

  /// Frees the slot. False if this process was taken for dead: the message may be another's by now.
  bool finish(const TakenSlot& taken);

  /// To be called between "I am about to sleep" at `bell` and the last look: lone users of a side make no barriers
  /// unless they are asked to.
  void see_solo_users(RingBell& bell) const;
  /// Messages that went over that side so far, about.
  std::uint64_t count_over(const RingSide& side) const;

  /// After not_empty was rung where somebody was parked: whoever polls may be.
  void ring_pollers() const;

  /// No put succeeds after this; what is there can still be taken.
  void close();
  bool is_closed() const { return header_->closed.load(std::memory_order_seq_cst) != 0; }

  /// Whether the next one who takes, or puts, will find a message, or free space, at the first look.
  bool has_message() const;
  bool has_space() const;

  /// Messages that nobody has taken. Cost: a look at every slot, as of the following.
  std::size_t size() const;
  bool is_full() const;
  /// Whether no message is there, in hand, or on its way in.
  bool is_finished() const;

  /// Brings slots of dead processes in order, up to `count` of them from `first` on. True if it changed any.
  bool sweep(std::uint32_t first, std::uint32_t count);

  std::uint64_t lost() const { return header_->losses.count.load(std::memory_order_acquire); }
  /// The newest of them, the oldest first.
  std::vector<LostMessage> lost_messages() const;
  std::optional<LostMessage> lost_message(std::uint64_t count) const;  ///< The first is 1.

 private:
  enum class Step { kAgain, kWait, kClosed };
  enum class Access { kSolo, kShared, kLater };

  /// Lines that the other side changed last take long to come: asked for early, several are on their way at a time.
  void prefetch(WordSlot& slot, RingPosition at) const {
    if (at.index() + slots_ahead_ < capacity_) prefetch_to_write(&slot + slots_ahead_);
  }
  /// Whether this thread is the only one on that side of the ring.
  Access access(RingSide& side) {
    const std::uint64_t user = side.user.load(std::memory_order_acquire);
    if ((user & ~RingUser::kTurns) == RingUser::self(memory_)) return Access::kSolo;
    return user == RingUser::kEverybody ? Access::kShared : gain_access(side);
  }
  Access gain_access(RingSide& side);
  Access change_user(RingSide& side, std::uint64_t next);
  std::optional<RingPosition> settled_position(const RingSide& side, std::uint64_t user) const;
  /// From now on the side belongs to all; false: not yet.
  bool share(RingSide& side);

  WordSlot& word_slot(std::uint32_t index) const { return reinterpret_cast<WordSlot*>(slots_)[index]; }
  WideSlot& wide_slot(std::uint32_t index) const {
    return *reinterpret_cast<WideSlot*>(slots_ + std::size_t{index} * slot_bytes_);
  }
  std::atomic<std::uint64_t>& state_of(std::uint32_t index) const { return wide_slot(index).state; }
  std::uint32_t index_of(const WideSlot& slot) const {
    return static_cast<std::uint32_t>((reinterpret_cast<const std::byte*>(&slot) - slots_) / slot_bytes_);
  }

  Step find(RingSide& side, Access access, RingPosition& at);
  Step step_to_put(RingPosition& at, SlotState seen);
  Step step_to_take(RingPosition& at, SlotState seen);
  RingPosition after_lap(RingPosition at, SlotState seen) const;
  void refer(WideSlot& slot, SlotState writing, std::span<const BlockHandle> references);
  void undo_claim(WideSlot& slot, SlotState writing);
  WideSlot* claim(SlotState& writing, RingResult& result);
  RingResult publish(WideSlot& slot, SlotState writing);
  bool take_from_behind(TakenSlot& taken);
  bool take_at(std::uint32_t index, SlotState seen, TakenSlot& taken);

  bool is_side_whole(const RingSide& side) const;
  /// Slots that one looks at before one waits. Where others are that much quicker it is no use to go on; and laps that
  /// somebody wrote over may lead round for ever.
  std::uint64_t longest_walk() const { return 1000 + std::uint64_t{16} * capacity_; }
  bool is_any_behind() const { return (header_->behind.load(std::memory_order_seq_cst) & 1) != 0; }
  bool recover_dead_owners();
  std::optional<std::uint64_t> sum_if_finished() const;

  bool resolve(std::uint32_t index, SlotState seen);
  bool resolve_taken(std::uint32_t index, SlotState seen);
  void redeliver(std::uint32_t index, SlotState seen, std::uint32_t deaths);
  void drop_references(std::uint32_t index, SlotState seen);
  void drop_what_is_left(std::uint32_t index, SlotState seen) noexcept;
  std::uint32_t deaths_before(std::uint32_t index, SlotState seen) const;
  void note_deaths(std::uint32_t index, SlotState full);

  bool lose(std::uint32_t index, SlotState seen, LostMessage::Reason reason);
  bool resume_loss();
  void end_loss();
  void keep_loss(RingLoss& record, std::uint32_t index, SlotState seen, LostMessage::Reason reason) const;
  std::span<const std::byte> beginning_of(std::uint32_t index, std::uint64_t& bytes) const;

  bool move_to_dead_letters(std::uint32_t index, SlotState seen);
  std::optional<MessageRing> dead_letter_ring() const;
  void fill_from(WideSlot& slot, SlotState writing, const MessageRing& from, std::uint32_t index);
  bool resolve_arriving(std::uint32_t index, SlotState seen);
  void end_arrival();
  void publish_arrival(std::uint32_t index, SlotState arriving, SlotState next);

  bool change(std::uint32_t index, SlotState from, SlotState to);

  JobMemory& memory_;
  BlockHandle block_;
  RingHeader* header_;
  std::byte* slots_;
  // As they were found sound: the header may be overwritten at any time.
  std::uint32_t capacity_;
  std::uint32_t slot_bytes_;
  std::uint32_t space_bytes_;
  std::uint32_t slots_ahead_;  ///< How far the prefetching goes: not to where the other side is at work.
  bool has_words_;
  /// By slot, where messages are redelivered: a full state with the deaths before the delivery that is going on.
  std::atomic<std::uint64_t>* deaths_ = nullptr;
};

}  // namespace retinue
