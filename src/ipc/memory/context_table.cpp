#include "ipc/memory/context_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "os/sync/futex.h"
#include "os/testing/crash_point.h"
#include "retinue/base/error.h"

namespace retinue {

namespace {

void release_request(JobMemory& memory, ContextRecord& record) {
  try {
    if (record.request) memory.release(record.request, kGuardianSlot);
  } catch (const UsageError&) {
    // Whoever asked was killed before the guardian owned the request, or while it freed it.
  }
  RETINUE_CRASH_POINT();
  record.request = {};
}

}  // namespace

ContextRecord& context_record(const JobMemory& memory, std::uint32_t index) {
  if (index >= kMaxContexts) throw UsageError(fmt::format("context {} of {}", index, kMaxContexts));
  return memory.header().contexts[index];
}

std::uint32_t reserve_context(JobMemory& memory, std::uint32_t nprocs) {
  const std::vector<std::uint32_t> slots = reserve_process_slots(memory, nprocs);
  for (std::uint32_t index = 0; index < kMaxContexts; ++index) {
    ContextRecord& record = context_record(memory, index);
    if (!reserve_entry(memory, record.reserved_by, index, memory.header().context_end)) continue;
    RETINUE_CRASH_POINT();
    record.state.store(ContextRecord::kReserved, std::memory_order_release);
    record.id = memory.header().next_context_id.fetch_add(1, std::memory_order_relaxed) + 1;
    record.nprocs = nprocs;
    record.parent_slot = memory.own_slot();
    record.abandoned.store(0, std::memory_order_relaxed);
    record.retrieved.store(0, std::memory_order_relaxed);
    record.daemon = 0;
    record.request = {};
    RETINUE_CRASH_POINT();
    std::copy(slots.begin(), slots.end(), record.slots);
    RETINUE_CRASH_POINT();
    for (std::uint32_t rank = 0; rank < nprocs; ++rank) {
      ProcessSlot& slot = process_slot(memory, slots[rank]);
      slot.rank = slot.local_rank = static_cast<std::int32_t>(rank);
      slot.context = index;
      RETINUE_CRASH_POINT();
    }
    return index;
  }
  for (const std::uint32_t slot : slots) free_process_slot(memory, slot);
  throw SystemError(fmt::format("starting processes: {} starts of this job (spawn, start_processes, Process, a "
                                "Pool's workers) have not been joined, and more are not possible: join() those that "
                                "have ended, or destroy the objects that they returned",
                                kMaxContexts),
                    EAGAIN);
}

void free_context(JobMemory& memory, std::uint32_t index) {
  ContextRecord& record = context_record(memory, index);
  for (std::uint32_t rank = 0; rank < record.nprocs; ++rank)
    if (process_slot(memory, record.slots[rank]).context == index) free_process_slot(memory, record.slots[rank]);
  RETINUE_CRASH_POINT();
  release_request(memory, record);
  RETINUE_CRASH_POINT();
  record.state.store(ContextRecord::kFree, std::memory_order_release);
  notify_context(record);  // Its owner's end may wait for it.
  RETINUE_CRASH_POINT();
  record.reserved_by.store(0, std::memory_order_release);
}

void free_starts_of(JobMemory& memory, const std::bitset<kMaxProcesses>& starters) {
  const JobHeader& header = memory.header();
  const auto is_theirs = [&](const std::atomic<std::uint32_t>& reserved_by) {
    const std::uint32_t owner = reserved_by.load(std::memory_order_acquire);
    return owner != 0 && owner <= kMaxProcesses && starters.test(owner - 1);
  };
  for (std::uint32_t index = 0; index < header.context_end.load(std::memory_order_acquire); ++index)
    if (is_theirs(header.contexts[index].reserved_by)) free_context(memory, index);
  for (std::uint32_t slot = kGuardianSlot + 1; slot < header.process_end.load(std::memory_order_acquire); ++slot)
    if (is_theirs(header.processes[slot].reserved_by)) free_process_slot(memory, slot);
}

bool claim_abandoned(ContextRecord& record, std::uint32_t id) {
  return record.abandoned.compare_exchange_strong(id, ContextRecord::kClaimed, std::memory_order_seq_cst);
}

void notify_context(ContextRecord& record) {
  record.changed.fetch_add(1, std::memory_order_release);
  futex_wake_all(record.changed);
}

JobGroup world_of(const std::shared_ptr<JobMemory>& memory, std::uint32_t slot_index) {
  const ProcessSlot& slot = process_slot(*memory, slot_index);
  if (slot.context == ProcessSlot::kNoContext) return {memory, fmt::format("process {}", slot_index), 0, {slot_index}};
  const ContextRecord& record = context_record(*memory, slot.context);
  return {memory, fmt::format("context {}/world", record.id), slot.rank,
          std::vector<std::uint32_t>(record.slots, record.slots + record.nprocs)};
}

}  // namespace retinue
