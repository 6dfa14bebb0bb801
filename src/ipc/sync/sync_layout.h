#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ipc/memory/job_layout.h"
#include "ipc/ring/ring_layout.h"
#include "os/sync/robust_mutex.h"
#include "retinue/ipc/detail/sync_handle.h"
#include "retinue/ipc/shared_block.h"

/// How the objects of retinue/ipc/lock.h and its like lie in their blocks.
namespace retinue {

/// Every block begins with it, so that one object never arrives as another.
struct SyncHeader {
  std::uint64_t magic;
  SyncKind kind;
  std::uint32_t offset;  ///< Of values that lie behind a lock, 0 for none.
  std::uint64_t type;    ///< Of these values.

  static constexpr std::uint64_t kMagic = 0x434e595345554552ull;
};

/// What is not atomic is its holder's.
struct LockState {
  SyncHeader header;
  RobustMutex mutex;
  std::atomic<std::uint32_t> cpu;  ///< Of the holder when it took the lock, plus one: a hint.
  std::uint32_t depth;             ///< How often its holder has it.
  std::uint32_t owner_died;        ///< 1: the one before the holder died with it.
  std::uint32_t death_to_tell;     ///< 1: the next one is to be told so.
  /// The holder's SharedBlock of this very block, in its own process: while a thread holds the lock, the list by which
  /// the kernel finds it leads through here, and the memory must not become another's.
  alignas(SharedBlock) std::byte keep[sizeof(SharedBlock)];
};

struct SemaphoreState {
  SyncHeader header;
  std::uint32_t most;  ///< Of a bounded one.
  alignas(128) std::atomic<std::uint32_t> value;
  std::atomic<std::uint32_t> spin_budget;
  RingBell bell;
};

struct EventState {
  SyncHeader header;
  /// Odd while it is set: so each set() changes it for those who wait, also where a clear() follows at once.
  alignas(128) std::atomic<std::uint32_t> changes;
  std::atomic<std::uint32_t> spin_budget;
  RingBell bell;
};

/// Writes the header to the block's start, and zeros up to `bytes`.
void lay_out_sync_block(const SharedBlock& block, SyncKind kind, std::size_t bytes);
SharedBlock make_sync_block(const std::shared_ptr<JobMemory>& memory, SyncKind kind, std::size_t bytes);

/// Errors: UsageError if the block is something else.
void check_sync_block(const SharedBlock& block, SyncKind kind);

[[noreturn]] void throw_no_sync_object(const char* object);

[[noreturn]] void throw_short_sync_block(const char* object);

/// `object` names the class for the message. Errors: UsageError where nothing is held, or too little.
template <class State>
State& sync_state(const SharedBlock& block, const char* object) {
  if (!block) throw_no_sync_object(object);
  if (block.bytes() < sizeof(State)) throw_short_sync_block(object);
  return *reinterpret_cast<State*>(block.data());
}

}  // namespace retinue
