#pragma once

#include "retinue/ipc/job_memory.h"

namespace retinue {

/// In the program that made the job, when PyTorch's elastic above it names an error file: a crash, and an exception
/// that nobody catches, are written there before the program dies of them. Otherwise nothing changes for the program.
void report_own_failure(const JobMemory& memory, int control_send_fd);

/// From here on a failure is told to nobody: the guardian is about to end, or this is a fork of the program.
void stop_reporting_own_failure();

}  // namespace retinue
