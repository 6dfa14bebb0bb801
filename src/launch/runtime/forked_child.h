#pragma once

#include "retinue/ipc/job_memory.h"

namespace retinue {

/// To be called when a rank's function, or a task's, has come back, in the catch block where it threw: in what may be a
/// process that the function forked off and that ran on. Such a one is no rank, and what it tells of would be taken for
/// the rank's result or end. It says so on stderr and ends with code 1, without exit handlers. Does nothing in a rank.
void end_forked_child(const JobMemory& memory) noexcept;

}  // namespace retinue
