#pragma once

#include <cerrno>
#include <string>

#include "ipc/memory/job_layout.h"
#include "retinue/base/error.h"
#include "retinue/ipc/job_memory.h"
#include "retinue/os/detail/interrupt.h"

namespace retinue {

/// A job whose guardian is gone ends, and nobody may come any more. Errors: SystemError; `waiting` says what the caller
/// does.
inline void throw_if_job_ends(const JobMemory& memory, const char* waiting) {
  const ProcessSlot& guardian = memory.header().processes[kGuardianSlot];
  if (guardian.state.load(std::memory_order_acquire) == ProcessState::kRunning && guardian.life.owner_died())
    throw SystemError(std::string(waiting) + ": the job's guardian has ended, and the job ends", ECANCELED);
}

/// For waits that looked up. Errors: SystemError if the job ends; with EINTR if a signal is to end the wait.
inline void throw_if_wait_ends(const JobMemory& memory, const char* waiting) {
  if (detail::is_interrupted()) throw SystemError(waiting, EINTR);
  throw_if_job_ends(memory, waiting);
}

/// As throw_if_job_ends for what does not wait, in a guest, which the job's end leaves alone.
inline void throw_if_visited_job_ends(const JobMemory& memory, const char* doing) {
  if (is_guest_slot(memory, memory.own_slot())) throw_if_job_ends(memory, doing);
}

}  // namespace retinue
