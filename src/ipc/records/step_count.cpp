#include "retinue/ipc/step_count.h"

#include "ipc/memory/process_table.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {

void count_step() noexcept {
  const JobMemory* const memory = JobMemory::current_or_null();
  if (memory == nullptr || memory->own_slot() == JobMemory::kNoSlot || !memory->is_of_this_process()) return;
  process_slot(*memory, memory->own_slot()).steps.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace retinue
