#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "ipc/memory/process_slot.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {

constexpr std::uint32_t kMaxProcesses = 1024;

ProcessSlot& process_slot(const JobMemory& memory, std::uint32_t index);

/// Claims an entry of a table, slot or context, by its `reserved_by`, for the calling process; false: it is another's.
/// `end`: behind the last one that was ever claimed.
bool reserve_entry(const JobMemory& memory, std::atomic<std::uint32_t>& reserved_by, std::uint32_t index,
                   std::atomic<std::uint32_t>& end);

/// Claims `count` free slots for processes that are to be started; kReserved afterwards, crash record cleared.
/// Errors: SystemError (EAGAIN) when more than kMaxProcesses processes are alive in the job.
std::vector<std::uint32_t> reserve_process_slots(JobMemory& memory, std::uint32_t count);

/// Makes slot `index` that of the calling process: takes its life lock on this thread, which must be the main thread,
/// and sets pid and kRunning. From here on JobMemory::own_slot() gives it.
void enter_process_slot(JobMemory& memory, std::uint32_t index);

/// The same where a program before this one had the slot and has ended: a rank may run several, one after the other.
/// What that one held stays the rank's. False: it still runs.
bool take_over_process_slot(JobMemory& memory, std::uint32_t index);

/// The process in that slot joined a world, as reports say where it has another rank there.
void note_world(ProcessSlot& slot, std::int32_t rank, std::int32_t size);

/// The same for a guest of the job, whose forks are nobody's business.
void enter_guest_slot(JobMemory& memory, std::uint32_t index);
/// Whether slot `index` is that of a process that belongs to no job, or to another one, and only uses this one's
/// memory.
bool is_guest_slot(const JobMemory& memory, std::uint32_t index);

/// Gives a dead process's slot back, together with its blocks; an abandoned one's is left to free_abandoned_slot().
/// Who was killed in here calls again, or another does.
void free_process_slot(JobMemory& memory, std::uint32_t index);

/// The same for an abandoned process that has ended after all. The guardian's alone. False: its context is not freed.
bool free_abandoned_slot(JobMemory& memory, std::uint32_t index);

}  // namespace retinue
