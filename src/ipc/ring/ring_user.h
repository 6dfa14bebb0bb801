#pragma once

#include <cstdint>

#include "ipc/memory/ring_owner.h"
#include "ipc/ring/ring_layout.h"

/// Who uses one side of a ring. As long as that is a single thread, it needs no atomic changes there: it announces an
/// operation by moving its position, looks whether the side is still its own, and changes the slot. A second thread
/// first takes the side away: it says so in `user`, lets a barrier pass over the first one's CPU, and sees by position
/// and slot whether that is in an operation. Each user has a position of its own, since one that lost the side may take
/// its announcement back at any later time. After a few such changes of hands the side belongs to all, for good.
namespace retinue {

/// A thread of the job: its process, whether it is the main thread, and its number in the process.
class RingUser {
 public:
  static constexpr std::uint64_t kNobody = 0;
  static constexpr std::uint64_t kEverybody = ~std::uint64_t{0};
  static constexpr std::uint64_t kLosing = std::uint64_t{1} << 27;  ///< Somebody takes the side away from this one.
  static constexpr int kTurnShift = 28;                             ///< 4 bits: which user of the side it is.
  static constexpr std::uint64_t kTurns = std::uint64_t{15} << kTurnShift;

  static constexpr std::size_t turn_of(std::uint64_t user) { return (user & kTurns) >> kTurnShift; }

  /// The calling thread, without a turn.
  static std::uint64_t self(const JobMemory& memory) {
    if (known.memory != &memory || known.slot != memory.own_slot()) [[unlikely]]
      know(memory);
    return known.self;
  }

  /// Whether `user`, who may have a turn, is the calling thread; false also where that has not called self() yet.
  static bool is_self(const JobMemory& memory, std::uint64_t user) {
    return (user & ~kTurns) == known.self && known.memory == &memory && known.slot == memory.own_slot();
  }

  /// Whether the thread cannot run any more.
  static bool is_gone(const JobMemory& memory, std::uint64_t user);

 private:
  /// A process in a slot stays what it is.
  struct Known {
    const JobMemory* memory = nullptr;
    std::uint32_t slot = JobMemory::kNoSlot;
    std::uint64_t self = kNobody;
  };
  static void know(const JobMemory& memory);
  static const int kForkHandler;

  /// Found without a call, which position-independent code would else make for it at every message.
  [[gnu::tls_model("initial-exec")]] static thread_local constinit Known known;
};

}  // namespace retinue
