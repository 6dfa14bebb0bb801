#pragma once

#include <cstdint>

#include "ipc/memory/job_layout.h"
#include "retinue/ipc/job_memory.h"

/// A process in 26 bits of a state word: its slot, and which one of those that had the slot it is.
namespace retinue {

constexpr int kOwnerSlotBits = 10;
static_assert(kMaxProcesses <= 1u << kOwnerSlotBits);

inline std::uint32_t owner_of(std::uint32_t slot, const ProcessSlot& process) {
  return (process.incarnation.load(std::memory_order_acquire) & 0xffffu) << kOwnerSlotBits | slot;
}

/// The calling process. It has a slot: it could not own the ring's block without.
inline std::uint32_t own_owner(const JobMemory& memory) {
  const std::uint32_t slot = memory.own_slot() % kMaxProcesses;
  return owner_of(slot, memory.header().processes[slot]);
}

/// Whether none of the process's threads can run any more: it was reaped.
inline bool owner_is_reaped(const JobMemory& memory, std::uint32_t owner) {
  const std::uint32_t slot = owner % kMaxProcesses;
  const ProcessSlot& process = memory.header().processes[slot];
  const ProcessState state = process.state.load(std::memory_order_acquire);
  return owner_of(slot, process) != owner || state == ProcessState::kDead || state == ProcessState::kFree;
}

/// Whether the process's main thread has ended. Other threads of it may run for some microseconds more.
inline bool owner_is_gone(const JobMemory& memory, std::uint32_t owner) {
  const ProcessSlot& process = memory.header().processes[owner % kMaxProcesses];
  return owner_is_reaped(memory, owner) ||
         (process.state.load(std::memory_order_acquire) == ProcessState::kRunning && process.life.owner_died());
}

}  // namespace retinue
