#include "ipc/memory/process_table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "ipc/memory/job_layout.h"
#include "ipc/memory/poller.h"
#include "os/machine/memory.h"
#include "os/sync/clock.h"
#include "os/sync/futex.h"
#include "os/testing/crash_point.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

/// What stands there of a process's own doings, not of how it was started.
void clear_doings(ProcessSlot& slot) {
  slot.incarnation.fetch_add(1, std::memory_order_release);
  slot.world_size.store(0, std::memory_order_relaxed);
  slot.call_state.store(kNoCallsYet, std::memory_order_relaxed);
  slot.calls = {};
  slot.recorder.store(0, std::memory_order_relaxed);
  slot.progress.store(0, std::memory_order_relaxed);
  slot.steps.store(0, std::memory_order_relaxed);
  slot.crash.phase.store(0, std::memory_order_relaxed);
  slot.crash.kind = CrashKind::kNone;
  slot.crash.message[0] = slot.crash.type[0] = '\0';
  slot.crash.frame_count = slot.crash.object_count = 0;
  slot.crash.stack_phase.store(0, std::memory_order_relaxed);
  slot.crash.reported.store(0, std::memory_order_relaxed);
}

void clear(ProcessSlot& slot) {
  slot.life.reset();
  clear_doings(slot);
  slot.pid.store(0, std::memory_order_relaxed);
  slot.rank = slot.local_rank = 0;
  slot.context = ProcessSlot::kNoContext;
  slot.parent = JobMemory::kNoSlot;
  slot.exit_status.store(0, std::memory_order_relaxed);
  slot.stop_signal.store(0, std::memory_order_relaxed);
  slot.stopped_ns.store(0, std::memory_order_relaxed);
  slot.started_ns.store(0, std::memory_order_relaxed);
  slot.ended_ns.store(0, std::memory_order_relaxed);
  slot.use = {};
  slot.killed_for_memory = 0;
  slot.full_cgroup_limit_bytes = 0;
  slot.is_status_taken = 0;
  slot.abandoned_in = 0;
  slot.cpu_share = 0;
  slot.is_process = 0;
  slot.unretrieved_failures.store(0, std::memory_order_relaxed);
  slot.has_returned.store(0, std::memory_order_relaxed);
  slot.returned = {};
}

/// Last, nobody has it: whoever is killed before leaves a slot that is known to be its own.
void make_free(ProcessSlot& slot) {
  slot.state.store(ProcessState::kFree, std::memory_order_release);
  RETINUE_CRASH_POINT();
  slot.reserved_by.store(0, std::memory_order_release);
}

/// Where this process has its life lock.
void begin_to_run(JobMemory& memory, std::uint32_t index) {
  ProcessSlot& slot = process_slot(memory, index);
  slot.pid.store(getpid(), std::memory_order_relaxed);
  std::uint64_t unset = 0;  // The guardian knows when it forked the rank.
  slot.started_ns.compare_exchange_strong(unset, monotonic_ns(), std::memory_order_relaxed);
  slot.state.store(ProcessState::kRunning, std::memory_order_release);
  memory.set_own_slot(index);
}

}  // namespace

bool reserve_entry(const JobMemory& memory, std::atomic<std::uint32_t>& reserved_by, std::uint32_t index,
                   std::atomic<std::uint32_t>& end) {
  std::uint32_t known = end.load(std::memory_order_relaxed);
  while (known <= index && !end.compare_exchange_weak(known, index + 1, std::memory_order_acq_rel)) continue;
  std::uint32_t nobody = 0;
  return reserved_by.compare_exchange_strong(nobody, memory.own_slot() + 1, std::memory_order_acq_rel);
}

ProcessSlot& process_slot(const JobMemory& memory, std::uint32_t index) {
  if (index >= kMaxProcesses) throw UsageError(fmt::format("process slot {} of {}", index, kMaxProcesses));
  return memory.header().processes[index];
}

std::vector<std::uint32_t> reserve_process_slots(JobMemory& memory, std::uint32_t count) {
  std::vector<std::uint32_t> slots;
  // Slots of the program and its guardian are theirs from the start.
  for (std::uint32_t i = kGuardianSlot + 1; i < kMaxProcesses && slots.size() < count; ++i) {
    ProcessSlot& slot = process_slot(memory, i);
    if (!reserve_entry(memory, slot.reserved_by, i, memory.header().process_end)) continue;
    RETINUE_CRASH_POINT();
    slot.state.store(ProcessState::kReserved, std::memory_order_release);
    clear(slot);
    slot.parent = memory.own_slot();
    RETINUE_CRASH_POINT();
    slots.push_back(i);
  }
  if (slots.size() == count) return slots;
  for (const std::uint32_t i : slots) make_free(process_slot(memory, i));
  throw SystemError(
      fmt::format("starting {} processes: the job's table holds {} processes in all", count, kMaxProcesses - 2),
      EAGAIN);
}

void enter_process_slot(JobMemory& memory, std::uint32_t index) {
  if (index <= kGuardianSlot) {
    clear(process_slot(memory, index));
  } else {
    map_mark(memory.memfd());  // By which a rank's forks are found when no parent leads to them any more.
  }
  process_slot(memory, index).life.take();
  begin_to_run(memory, index);
}

bool take_over_process_slot(JobMemory& memory, std::uint32_t index) {
  ProcessSlot& slot = process_slot(memory, index);
  if (!slot.life.take_over()) return false;
  slot.unretrieved_failures.store(0, std::memory_order_relaxed);
  slot.pid.store(getpid(), std::memory_order_release);  // By which others tell this process from the one before,
  futex_wake_all(slot.life.word());                     // also those that sleep on that one's life.
  clear_doings(slot);
  map_mark(memory.memfd());
  begin_to_run(memory, index);
  ring_all_pollers(memory);  // Of what the one before had in hand.
  return true;
}

void note_world(ProcessSlot& slot, std::int32_t rank, std::int32_t size) {
  if (slot.context == ProcessSlot::kNoContext || rank < 0 || rank == slot.rank) return;
  if (size <= slot.world_size.load(std::memory_order_relaxed)) return;
  slot.world_rank.store(rank, std::memory_order_relaxed);
  slot.world_size.store(size, std::memory_order_release);
}

void enter_guest_slot(JobMemory& memory, std::uint32_t index) {
  process_slot(memory, index).life.take();
  begin_to_run(memory, index);
}

bool is_guest_slot(const JobMemory& memory, std::uint32_t index) {
  if (index <= kGuardianSlot || index >= kMaxProcesses) return false;
  const ProcessSlot& slot = memory.header().processes[index];
  return slot.context == ProcessSlot::kNoContext && slot.abandoned_in == 0;
}

void free_process_slot(JobMemory& memory, std::uint32_t index) {
  ProcessSlot& slot = process_slot(memory, index);
  const std::atomic_ref context(slot.context);
  // An abandoned process may still write to what it held: the guardian frees it when that has ended at last.
  if (slot.abandoned_in != 0) return context.store(ProcessSlot::kNoContext, std::memory_order_release);
  slot.recorder.store(0, std::memory_order_relaxed);
  slot.progress.store(0, std::memory_order_relaxed);
  memory.release_all(index);
  RETINUE_CRASH_POINT();
  context.store(ProcessSlot::kNoContext, std::memory_order_release);
  RETINUE_CRASH_POINT();
  make_free(slot);
}

bool free_abandoned_slot(JobMemory& memory, std::uint32_t index) {
  ProcessSlot& slot = process_slot(memory, index);
  if (std::atomic_ref(slot.context).load(std::memory_order_acquire) != ProcessSlot::kNoContext) return false;
  slot.recorder.store(0, std::memory_order_relaxed);
  slot.progress.store(0, std::memory_order_relaxed);
  memory.release_all(index);
  slot.abandoned_in = 0;
  make_free(slot);
  return true;
}

}  // namespace retinue
