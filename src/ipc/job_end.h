#pragma once

#include <cerrno>
#include <string>

#include "ipc/job_layout.h"
#include "retinue/base/error.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {

/// For waits that looked up: a job whose guardian was killed ends, and nobody may come any more.
/// Errors: SystemError; `waiting` says what the caller does.
inline void throw_if_job_ends(const JobMemory& memory, const char* waiting) {
  const ProcessSlot& guardian = memory.header().processes[kGuardianSlot];
  if (guardian.state.load(std::memory_order_acquire) == ProcessState::kRunning && guardian.life.owner_died())
    throw SystemError(std::string(waiting) + ": the job's guardian was killed, and the job ends", ECANCELED);
}

}  // namespace retinue
