#include "retinue/ipc/job_allocator.h"

#include "retinue/base/error.h"

namespace retinue::detail {

void release_job_memory(JobMemory& memory, const void* pointer) noexcept {
  try {
    if (const auto block = memory.find(pointer)) memory.release(*block);
  } catch (const Error&) {
    // The block comes back with all that this process holds.
  }
}

}  // namespace retinue::detail
