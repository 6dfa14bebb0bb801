#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "retinue/ipc/job_memory.h"

namespace retinue {

/// A place of somebody who waits: who, since when in relation to the others, and what became of it, in one word. The
/// ticket makes that a word hardly ever comes back.
class WaitPlace {
 public:
  enum class Phase : std::uint64_t {
    kFree = 0,
    kWaiting = 1,
    kWoken = 2,
    kSpecial = 3,  ///< Of a Condition: its owner passes on a wake-up of the dead. Of a Barrier: it broke.
  };

  explicit constexpr WaitPlace(std::uint64_t word = 0) : word_(word) {}
  constexpr WaitPlace(std::uint32_t owner, std::uint32_t ticket, Phase phase)
      : word_(std::uint64_t{owner} << 32 | std::uint64_t{ticket & kTicketMask} << 2 |
              static_cast<std::uint64_t>(phase)) {}

  constexpr std::uint64_t word() const { return word_; }
  constexpr Phase phase() const { return static_cast<Phase>(word_ & 3); }
  /// A process, as owner_of() names it.
  constexpr std::uint32_t owner() const { return static_cast<std::uint32_t>(word_ >> 32); }
  constexpr std::uint32_t ticket() const { return static_cast<std::uint32_t>(word_) >> 2; }
  constexpr WaitPlace with(Phase phase) const {
    return WaitPlace((word_ & ~std::uint64_t{3}) | static_cast<std::uint64_t>(phase));
  }
  /// Whether it is the same one's, in whatever phase.
  constexpr bool is_same_as(WaitPlace other) const { return word_ >> 2 == other.word_ >> 2; }
  /// Whether it came before `other`: tickets wrap around.
  constexpr bool is_before(WaitPlace other) const {
    return static_cast<std::int32_t>((ticket() - other.ticket()) << 2) < 0;
  }
  friend constexpr bool operator==(WaitPlace, WaitPlace) = default;

 private:
  static constexpr std::uint32_t kTicketMask = (1u << 30) - 1;

  std::uint64_t word_;
};

/// In shared memory, zeroed at first.
struct WaitListState {
  static constexpr std::uint32_t kPlaces = 1000;

  std::uint32_t next_ticket;        ///< Under the lock of the list's owner.
  std::atomic<std::uint32_t> used;  ///< Places that were ever taken: the first ones.
  std::atomic<std::uint64_t> places[kPlaces];
};

/// Those who wait for one thing, each at a futex of its own, so that just as many are woken as are meant, and not the
/// dead among them. Entering and waking happen under a lock of the list's owner; but who dies in the middle leaves
/// nothing that harms.
class WaitList {
 public:
  using Phase = WaitPlace::Phase;

  WaitList(const JobMemory& memory, WaitListState& state) : memory_(memory), state_(state) {}

  /// Takes a place, for the calling thread. Errors: SystemError (EAGAIN) when all are taken.
  std::uint32_t enter(const char* waiting);
  void leave(std::uint32_t index, WaitPlace mine);
  /// Leaves so that, to all others, who still waited there has died: for one that cannot tell them itself.
  void forsake(std::uint32_t index, WaitPlace mine);

  WaitPlace at(std::uint32_t index) const { return WaitPlace(state_.places[index].load(std::memory_order_acquire)); }
  /// Blocking: while the place is as it was, at most `longest`.
  void sleep(std::uint32_t index, WaitPlace mine, std::chrono::nanoseconds longest) const;

  /// The oldest one that waits and lives; false if there is none.
  bool wake_oldest();
  /// All that wait, alive or not.
  void wake_all(Phase phase);
  /// Wakes others in place of those that were woken and then died.
  void pass_on_wakeups_of_the_dead();

  std::uint32_t count_waiting() const;
  /// Whether one that waits is gone.
  bool has_dead_waiter() const;
  bool is_gone(WaitPlace place) const;

 private:
  /// True if this call changed it; wakes who sleeps there.
  bool change(std::uint32_t index, WaitPlace from, Phase to);
  std::uint32_t count_used() const;
  std::uint32_t find_free() const;

  const JobMemory& memory_;
  WaitListState& state_;
};

}  // namespace retinue
