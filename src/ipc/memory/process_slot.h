#pragma once

#include <atomic>
#include <cstdint>

#include "ipc/memory/crash_record.h"
#include "os/process/process_use.h"
#include "os/sync/life_lock.h"
#include "retinue/ipc/block_handle.h"

namespace retinue {

/// What is known of a process of the job. Written by its owner, and after its death by the guardian.
enum class ProcessState : std::uint32_t {
  kFree = 0,      ///< The slot belongs to nobody.
  kReserved = 1,  ///< A caller asked for the process; nobody runs yet.
  kStarted = 2,   ///< The guardian forked it.
  kRunning = 3,   ///< It holds its life lock.
  kFinished = 4,  ///< Its function returned or threw; the process is about to exit.
  kDead = 5,      ///< Reaped: `exit_status` is valid.
};

/// Whether calls are made to a rank.
enum CallState : std::uint32_t {
  kNoCallsYet = 0,
  kTakesCalls = 1,   ///< `calls` is valid.
  kNoMoreCalls = 2,  ///< None was ever made, and none will be.
};

/// One process's entry in the job's process table.
struct alignas(4096) ProcessSlot {
  LifeLock life;  ///< Held by the process's main thread as long as it lives; the kernel marks its death.
  std::atomic<ProcessState> state;
  /// Whoever reserved the slot, until it is free again: its own slot + 1; 0: nobody. Set before all else is.
  std::atomic<std::uint32_t> reserved_by;
  std::atomic<std::int32_t> pid;
  /// Counts the processes that had this slot, so that what names one of them never means a later one.
  std::atomic<std::uint32_t> incarnation;
  std::int32_t rank;  ///< Rank in its context's world.
  std::int32_t local_rank;
  /// In the largest world that it joined as another rank than `rank`; a size of 0: in none.
  std::atomic<std::int32_t> world_rank;
  std::atomic<std::int32_t> world_size;
  std::uint32_t context;                  ///< Index of its context, kNoContext for the program.
  std::uint32_t parent;                   ///< Slot of the process that asked for it.
  std::atomic<std::int32_t> exit_status;  ///< As wait() gives it; valid in kDead.
  /// Last signal that the stop sequence sent it while it lived, 0 for none: its end by that is no failure of its own.
  std::atomic<std::int32_t> stop_signal;
  std::atomic<std::uint64_t> stopped_ns;  ///< CLOCK_MONOTONIC of the stop sequence's first step for it, 0 for none.
  std::atomic<std::uint64_t> started_ns;  ///< CLOCK_MONOTONIC.
  std::atomic<std::uint64_t> ended_ns;    ///< CLOCK_MONOTONIC: thrown, returned, crashed, or else reaped.
  ProcessUse use;                         ///< Valid in kDead, as what follows.
  std::uint32_t killed_for_memory;        ///< 1: the kernel killed it because memory ran out.
  std::uint64_t full_cgroup_limit_bytes;  ///< Of the memory cgroup that was full then; 0: the machine was.
  std::uint32_t is_status_taken;  ///< 1: other code of its parent waited for it, and nobody else knows how it ended.
  char abandoned_in;              ///< The state, as ps has it, in which SIGKILL left it: it may live; 0: it ended.
  /// CPUs that its threads are meant to use; 0: nobody said, it shares the machine with the ranks of its world.
  std::int32_t cpu_share;
  std::uint32_t is_process;  ///< 1: a Process, which is alone in its world; reports don't call it a rank.
  std::atomic<std::uint32_t> unretrieved_failures;  ///< Of what it started: see JobHeader.
  std::atomic<std::uint32_t> has_returned;          ///< 1 when `returned` holds what its function returned.
  BlockHandle returned;
  std::atomic<std::uint32_t> call_state;  ///< CallState. Futex.
  BlockHandle calls;                      ///< A payload with the board of calls to this rank.
  std::atomic<std::uint64_t> recorder;    ///< Offset of its RecorderHead; 0: none. Freed with what it holds.
  std::atomic<std::uint64_t> steps;       ///< See count_step().
  std::atomic<std::uint64_t> progress;    ///< Offset of its ProgressRecord; 0: none. Freed with what it holds.
  CrashRecord crash;

  static constexpr std::uint32_t kNoContext = 0xffffffffu;

  /// Whether the process can still take part in anything: false as soon as it finished or died.
  bool is_alive() const {
    const ProcessState now = state.load(std::memory_order_acquire);
    if (now == ProcessState::kFinished || now == ProcessState::kDead) return false;
    return !(now == ProcessState::kRunning && life.owner_died());
  }
};

}  // namespace retinue
