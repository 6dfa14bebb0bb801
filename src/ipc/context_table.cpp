#include "ipc/context_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "os/futex.h"
#include "retinue/base/error.h"

namespace retinue {

ContextRecord& context_record(const JobMemory& memory, std::uint32_t index) {
  if (index >= kMaxContexts) throw UsageError(fmt::format("context {} of {}", index, kMaxContexts));
  return memory.header().contexts[index];
}

std::uint32_t reserve_context(JobMemory& memory, std::uint32_t nprocs) {
  const std::vector<std::uint32_t> slots = reserve_process_slots(memory, nprocs);
  for (std::uint32_t index = 0; index < kMaxContexts; ++index) {
    ContextRecord& record = context_record(memory, index);
    std::uint32_t expected = ContextRecord::kFree;
    if (!record.state.compare_exchange_strong(expected, ContextRecord::kReserved, std::memory_order_acq_rel)) continue;
    record.id = memory.header().next_context_id.fetch_add(1, std::memory_order_relaxed) + 1;
    record.nprocs = nprocs;
    record.parent_slot = memory.own_slot();
    record.abandoned.store(0, std::memory_order_relaxed);
    record.daemon = 0;
    record.request = {};
    std::copy(slots.begin(), slots.end(), record.slots);
    for (std::uint32_t rank = 0; rank < nprocs; ++rank) {
      ProcessSlot& slot = process_slot(memory, slots[rank]);
      slot.rank = slot.local_rank = static_cast<std::int32_t>(rank);
      slot.context = index;
    }
    return index;
  }
  for (const std::uint32_t slot : slots) free_process_slot(memory, slot);
  throw SystemError(fmt::format("starting processes: the job already has {} contexts", kMaxContexts), EAGAIN);
}

void free_context(JobMemory& memory, std::uint32_t index) {
  ContextRecord& record = context_record(memory, index);
  for (std::uint32_t rank = 0; rank < record.nprocs; ++rank)
    if (process_slot(memory, record.slots[rank]).context == index) free_process_slot(memory, record.slots[rank]);
  if (record.request) memory.release(record.request, kGuardianSlot);
  record.request = {};
  record.state.store(ContextRecord::kFree, std::memory_order_release);
}

bool claim_abandoned(ContextRecord& record) {
  std::uint32_t let_go = 1;
  return record.abandoned.compare_exchange_strong(let_go, 2, std::memory_order_seq_cst);
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
