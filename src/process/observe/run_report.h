#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "retinue/ipc/job_memory.h"

namespace retinue {

/// One context whose ranks have ended, and of which everything is still in job memory.
struct EndedContext {
  std::uint32_t id = 0;
  std::string name;
  std::vector<std::uint32_t> slots;  ///< By rank.
};

/// In the guardian, before the first rank starts: from now on the report goes where JobHeader says now. A rank can
/// write to job memory, and may have fewer rights than the guardian.
void keep_report_file(const JobMemory& memory);

/// The file that the job's report goes to; empty: none was asked for.
std::string report_file_of(const JobMemory& memory);

/// Notes where the report goes, relative to this process's directory. Errors: UsageError when no file can be made
/// there.
void ask_for_report(const JobMemory& memory, const std::string& file);

/// Adds a context to the job's report, which is made when it isn't there: one page of HTML that needs nothing else.
/// What an earlier job wrote into that file is gone; what others of this job wrote stays, but for this context's.
/// Errors: SystemError. Then what was there stays, and nothing else is left.
void add_to_report(const JobMemory& memory, const EndedContext& context);

/// Takes away what is left of an add_to_report() whose process was killed.
void clean_up_report(const JobMemory& memory, std::uint32_t context_id);

}  // namespace retinue
