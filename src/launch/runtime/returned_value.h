#pragma once

#include "ipc/memory/process_slot.h"
#include "retinue/ipc/job_memory.h"
#include "retinue/launch/detail/entry.h"

namespace retinue {

/// In the rank: puts what its function returned where the one who started it finds it. The block is the rank's own and
/// outlives it: a rank's blocks are given back with its context. Errors: SharedMemoryExhausted.
void store_returned(JobMemory& memory, ProcessSlot& slot, const detail::ReturnedValue& value);

/// What the rank of `slot`, which has ended, returned; empty if nothing. Call it before the context is freed.
detail::ReturnedValue load_returned(const std::shared_ptr<JobMemory>& memory, const ProcessSlot& slot);

}  // namespace retinue
