#pragma once

#include <cstddef>

#include "retinue/ipc/job_memory.h"

namespace retinue::test {

/// What of the job's memory is in use. Units: bytes.
inline std::size_t allocated() {
  return JobMemory::current()->allocated_bytes();
}

}  // namespace retinue::test
