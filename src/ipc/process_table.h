#pragma once

#include <cstdint>
#include <vector>

#include "ipc/process_slot.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {

constexpr std::uint32_t kMaxProcesses = 1024;

ProcessSlot& process_slot(const JobMemory& memory, std::uint32_t index);

/// Claims `count` free slots for processes that are to be started; kReserved afterwards, crash record cleared.
/// Errors: SystemError (EAGAIN) when more than kMaxProcesses processes are alive in the job.
std::vector<std::uint32_t> reserve_process_slots(JobMemory& memory, std::uint32_t count);

/// Makes slot `index` that of the calling process: takes its life lock on this thread, which must be the main thread,
/// and sets pid and kRunning. From here on JobMemory::own_slot() gives it.
void enter_process_slot(JobMemory& memory, std::uint32_t index);

/// The same for a guest of the job, whose forks are nobody's business.
void enter_guest_slot(JobMemory& memory, std::uint32_t index);
/// Whether slot `index` is that of a process that belongs to no job, or to another one, and only uses this one's
/// memory.
bool is_guest_slot(const JobMemory& memory, std::uint32_t index);

/// Gives a dead process's slot back, together with its blocks.
void free_process_slot(JobMemory& memory, std::uint32_t index);

}  // namespace retinue
