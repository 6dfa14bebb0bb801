#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ipc/memory/block_table.h"
#include "ipc/memory/process_table.h"
#include "ipc/ring/undelivered.h"

/// How a ring of messages lies in job memory: a header, then slots. The state words of the slots are the truth about
/// the ring; all else are hints, which may be behind but never ahead of it.
namespace retinue {

/// What is going on in a slot.
enum class SlotPhase : std::uint64_t {
  kEmpty = 0,
  kWriting = 1,  ///< The owner writes a message.
  kFull = 2,
  kTaken = 3,      ///< The owner has the message in hand.
  kAbandoned = 4,  ///< The owner died while it wrote; the slot stays closed until all its threads are gone for sure.
  kSealed = 5,     ///< The queue was closed before this position: nothing comes any more.
  kArriving = 6,   ///< The owner has put a message of another ring, and is about to end it there: see RingArrival.
};

/// A slot's state word. The lap says which pass over the ring it belongs to, so that a word never comes back.
class SlotState {
 public:
  explicit constexpr SlotState(std::uint64_t word) : word_(word) {}
  constexpr SlotState(std::uint64_t lap, SlotPhase phase, std::uint32_t owner = 0)
      : word_(lap << kLapShift | static_cast<std::uint64_t>(phase) << kPhaseShift | owner) {}

  constexpr std::uint64_t word() const { return word_; }
  constexpr SlotPhase phase() const { return static_cast<SlotPhase>(word_ >> kPhaseShift & 7); }
  /// A process, as owner_of() names it.
  constexpr std::uint32_t owner() const { return static_cast<std::uint32_t>(word_ & kMostDeaths); }
  /// Of a full slot, in place of the owner: how many consumers have died with the message in hand. Then the get hint
  /// may be past it.
  constexpr std::uint32_t deaths() const { return owner(); }
  constexpr std::uint64_t lap() const { return word_ >> kLapShift; }
  /// How many laps this state is ahead of lap `lap`; negative: behind.
  constexpr std::int64_t laps_ahead_of(std::uint64_t lap) const {
    return static_cast<std::int64_t>((word_ >> kLapShift << kLapShift) - (lap << kLapShift)) >> kLapShift;
  }
  constexpr SlotState with(SlotPhase phase, std::uint32_t owner = 0) const {
    return SlotState(word_ >> kLapShift, phase, owner);
  }
  constexpr SlotState emptied() const { return SlotState((word_ >> kLapShift) + 1, SlotPhase::kEmpty); }
  friend constexpr bool operator==(SlotState, SlotState) = default;

  static constexpr int kPhaseShift = 26;
  static constexpr std::uint32_t kMostDeaths = (1u << kPhaseShift) - 1;

 private:
  static constexpr int kLapShift = 29;

  std::uint64_t word_;
};

/// A place in the endless row of messages: which lap, which slot.
struct RingPosition {
  static constexpr int kIndexBits = 24;
  static constexpr std::uint32_t kMostSlots = 1u << kIndexBits;

  std::uint64_t value = 0;

  constexpr std::uint64_t lap() const { return value >> kIndexBits; }
  constexpr std::uint32_t index() const { return static_cast<std::uint32_t>(value) & (kMostSlots - 1); }
  constexpr RingPosition next(std::uint32_t capacity) const {
    const std::uint32_t after = index() + 1;
    return after < capacity ? RingPosition{value + 1} : RingPosition{(lap() + 1) << kIndexBits};
  }
  constexpr RingPosition before(std::uint32_t capacity) const {
    return index() > 0 ? RingPosition{value - 1} : RingPosition{(lap() - 1) << kIndexBits | (capacity - 1)};
  }
};

/// Where processes sleep until a slot changes.
struct alignas(64) RingBell {
  std::atomic<std::uint32_t> rung;               ///< Futex.
  std::atomic<std::uint32_t> parked;             ///< 1: somebody may sleep here.
  std::atomic<std::uint32_t> cpu;                ///< From which it was rung last, plus one.
  std::atomic<std::uint32_t> fences;             ///< BellFences: of those that ring it, as lone users of their side.
  std::atomic<std::uint64_t> expected_until_ns;  ///< Until then, by CLOCK_MONOTONIC, it may well ring: see announce().
};

/// Whether lone users of a side make a barrier between their store and the look at the bell, so that those who go to
/// sleep need none for them: it pays where sleeps are frequent. Each time that it begins has a number.
class BellFences {
 public:
  explicit constexpr BellFences(std::uint32_t word) : word_(word) {}

  constexpr std::uint32_t word() const { return word_; }
  /// Lone users that look at it now make one.
  constexpr bool are_asked_for() const { return (word_ & 3) != kNone; }
  /// And those that looked before are done.
  constexpr bool are_made() const { return (word_ & 3) == kMade; }

  constexpr BellFences asked_for_again() const { return BellFences(((word_ >> 2) + 1) << 2 | kAsked); }
  constexpr BellFences made() const { return BellFences((word_ & ~std::uint32_t{3}) | kMade); }
  constexpr BellFences ended() const { return BellFences(word_ & ~std::uint32_t{3}); }

 private:
  static constexpr std::uint32_t kNone = 0;
  static constexpr std::uint32_t kAsked = 1;
  static constexpr std::uint32_t kMade = 2;

  std::uint32_t word_;
};

/// Where one puts, or takes.
struct alignas(128) RingSide {
  static constexpr std::uint32_t kMostUsers = 8;

  std::atomic<std::uint64_t> hint;  ///< RingPosition: all before it are claimed (put) or over (get).
  std::atomic<std::uint64_t> user;  ///< RingUser.
  /// RingPositions where each lone user goes on, or is: nobody else writes there once it has begun.
  std::atomic<std::uint64_t> alone[kMostUsers];
};

struct RingHeader {
  static constexpr std::size_t kMostPollers = 16;

  std::uint64_t magic;
  std::uint64_t type;  ///< Hash of the messages' type.
  std::uint32_t capacity;
  std::uint32_t slot_bytes;
  std::uint32_t space_bytes;     ///< For a message in a slot.
  std::uint32_t is_joinable;     ///< 1: messages are in hand until task_done().
  std::uint32_t redelivers;      ///< 1: what a dead process had in hand goes to another,
  std::uint32_t max_deliveries;  ///< so often; 0: without a limit.
  std::atomic<std::uint32_t> closed;
  std::uint64_t no_consumer_ns;  ///< How long puts wait when all consumers are gone.
  BlockHandle dead_letters;      ///< Another ring, which this block carries; none: no handle.
  RingSide put;
  RingSide get;
  alignas(128) RingBell not_full;
  alignas(128) RingBell not_empty;
  std::atomic<std::uint64_t> pollers[kMostPollers];  ///< Tickets of those to be rung with it; see poller.h.
  alignas(128) RingBell done;
  alignas(128) std::atomic<std::uint64_t> behind;  ///< Odd: some redelivered message may be there; grows with each.
  RingLosses losses;
  RingArrival arrival;
  /// By process slot: ConsumerNotes of those that ever got from it or waited for that.
  alignas(64) std::atomic<std::uint64_t> consumers[kMaxProcesses];

  static constexpr std::uint64_t kMagic = 0x474e495245554552ull;
};

/// Behind the slots: the list that refers to the dead-letter queue, at the place of one more slot.
struct alignas(16) RingTail {
  std::atomic<std::uint64_t> state;
  std::uint64_t bytes;
  ReferenceList references;
  BlockHandle dead_letters;
};

/// A slot for messages of at most 8 bytes: message and state change in one step.
struct alignas(16) WordSlot {
  std::atomic<std::uint64_t> state;
  std::atomic<std::uint64_t> word;
};

/// A slot for longer messages.
struct alignas(16) WideSlot {
  std::atomic<std::uint64_t> state;
  std::uint64_t bytes;       ///< Of the message, or one of the following.
  ReferenceList references;  ///< What the message refers to.
  std::byte space[];         ///< The handles of the references, then the message.

  static constexpr std::uint64_t kInPayload = ~std::uint64_t{0};        ///< In `space` is a BlockHandle: it is there.
  static constexpr std::uint64_t kPayloadDone = ~std::uint64_t{0} - 1;  ///< The same, and the one in hand is finished.
  static constexpr std::uint64_t kReferencesDone = ~std::uint64_t{0} - 2;  ///< Finished too; it may have references.

  std::uint64_t reference_bytes() const { return std::uint64_t{references.count} * sizeof(BlockHandle); }
};

}  // namespace retinue
