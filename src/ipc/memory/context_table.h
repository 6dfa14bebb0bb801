#pragma once

#include <bitset>
#include <cstdint>

#include "ipc/memory/job_layout.h"
#include "retinue/ipc/job_group.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {

ContextRecord& context_record(const JobMemory& memory, std::uint32_t index);

/// Claims a context with `nprocs` process slots. Errors: SystemError (EAGAIN) when a table is full.
std::uint32_t reserve_context(JobMemory& memory, std::uint32_t nprocs);

/// Gives back the context, its process slots with their blocks, and its request. All its processes have ended.
/// Errors: TimeoutError while another process is in the block table; calling again goes on where this stopped.
void free_context(JobMemory& memory, std::uint32_t index);

/// Gives back contexts and slots that dead processes, named by their slots, had reserved and not handed to the guardian
/// yet, or not freed yet. No context that they started still runs. Errors: TimeoutError as free_context().
void free_starts_of(JobMemory& memory, const std::bitset<kMaxProcesses>& starters);

/// Whether the caller is the one who must free the ended context `id`: its owner that lets go of it, or the guardian at
/// its end, whoever comes second. The record may be another context's by then, which this leaves alone.
bool claim_abandoned(ContextRecord& record, std::uint32_t id);

/// Tells the context's waiters that something changed.
void notify_context(ContextRecord& record);

/// All ranks of the context as a group, seen by the process in `process_slot`.
JobGroup world_of(const std::shared_ptr<JobMemory>& memory, std::uint32_t process_slot);

}  // namespace retinue
