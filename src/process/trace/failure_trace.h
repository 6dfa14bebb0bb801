#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "process/logs/log_request.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {

/// The folder for the last calls of a context's ranks where one of them fails: DIR/<job>.<id>/context_<n>, by the
/// trace directory, so that no job and no attempt overwrites another's; else "trace" in a log directory that was given.
/// Empty: there is neither.
std::string failure_trace_folder(const LogRequest& logs, const JobMemory& memory, std::uint32_t context_id);

/// Whether that was written.
bool has_failure_trace(const std::string& folder);

/// Writes into that folder what the processes in these slots recorded, if they did; see write_trace_folder(). Of logs
/// that nobody wanted a trace beside, the newest calls only. Errors: SystemError.
void write_failure_trace(const LogRequest& logs, const JobMemory& memory, std::uint32_t context_id,
                         std::span<const std::uint32_t> slots);

}  // namespace retinue
