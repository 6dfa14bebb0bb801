#pragma once

#include <cstddef>

namespace retinue {

/// RETINUE_JOB_MEMORY in bytes; 0 where it isn't set. Errors: UsageError if it is no number of bytes.
std::size_t job_memory_of_environment();

}  // namespace retinue
