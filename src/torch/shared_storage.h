#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <memory>

#include "retinue/ipc/job_memory.h"

namespace retinue {

/// A block of job memory as a storage's data pointer; its deleter releases the block. 0 bytes give a null pointer.
c10::DataPtr allocate_shared(const std::shared_ptr<JobMemory>& memory, std::size_t bytes);

/// Whether `data` came from allocate_shared().
bool is_shared(const c10::DataPtr& data);

}  // namespace retinue
