#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "retinue/ipc/block_handle.h"

/// What a ring's header has for messages whose consumers died: those that are lost, and one that comes from a ring
/// whose dead-letter queue this one is.
namespace retinue {

/// What was lost, for who asks.
struct RingLoss {
  static constexpr std::size_t kBeginning = 8;  ///< Words.

  std::atomic<std::uint64_t> stamp;  ///< How many were lost with it; 0: being written.
  std::atomic<std::uint64_t> number;
  std::atomic<std::uint64_t> bytes;
  std::atomic<std::uint64_t> deliveries;
  std::atomic<std::uint64_t> pid;
  std::atomic<std::uint64_t> rank_and_reason;  ///< Rank + 1, and in the upper half why.
  std::atomic<std::uint64_t> beginning[kBeginning];
};

/// Messages that died with who had them in hand. One process at a time writes a record, names the slot that it is about
/// to empty, empties it and counts; who finds it dead goes on from there, so that each is counted once.
struct alignas(128) RingLosses {
  static constexpr std::uint32_t kMostKept = 16;

  std::atomic<std::uint32_t> holder;      ///< A process, as owner_of() names it; 0: nobody. See RingTryLock.
  std::atomic<std::uint32_t> is_pending;  ///< 1: what follows is valid.
  std::atomic<std::uint32_t> index;       ///< The slot,
  std::atomic<std::uint64_t> taken;       ///< and its state until it is emptied.
  std::atomic<std::uint64_t> before;      ///< `count` without it.
  std::atomic<std::uint64_t> count;
  std::atomic<std::uint64_t> told;  ///< How many of them were told on standard error, or are about to be.
  RingLoss kept[kMostKept];
};

/// A message on its way from another ring, whose dead-letter queue this one is. One process at a time claims a slot
/// here, writes the message, notes where it comes from, makes the slot kArriving, ends the message there (the commit:
/// one change of that slot's state), and makes the slot full. Who finds it dead looks there, and does the last step, or
/// takes it back.
struct alignas(64) RingArrival {
  std::atomic<std::uint32_t> holder;    ///< As RingLosses' own.
  std::atomic<std::uint32_t> is_noted;  ///< 1: what follows is valid.
  std::atomic<std::uint32_t> index;     ///< The slot here,
  std::atomic<std::uint64_t> arriving;  ///< and its state on the way.
  BlockHandle from;                     ///< The other ring, not held,
  std::atomic<std::uint64_t> at;        ///< the offset of its slot's state in job memory,
  std::atomic<std::uint64_t> taken;     ///< and that state until the message is ended there.
};

}  // namespace retinue
