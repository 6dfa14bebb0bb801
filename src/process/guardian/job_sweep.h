#pragma once

#include <cstddef>
#include <string>

#include "retinue/ipc/job_memory.h"

namespace retinue {

/// The environment variable that programs started by a rank inherit: the job's id. By it, and by a mapping that forks
/// of a rank inherit, a job's processes are known when no parent leads to them any more.
constexpr const char* kJobVariable = "RETINUE_JOB";
std::string job_variable_value(const JobMemory& memory);

/// Kills what ranks of the job left behind and nobody adopted, such as a daemon of a rank whose guardian was killed;
/// never the program, the guardian or what they forked themselves.
/// Blocking: until all of it is gone, at most ten seconds. Errors: SystemError when it could not look at all processes,
/// as without kSweepDescriptors free descriptors. Cost: a look at each process of the machine.
constexpr std::size_t kSweepDescriptors = 2;
void sweep_job(const JobMemory& memory);

}  // namespace retinue
