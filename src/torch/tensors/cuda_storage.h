#pragma once

#include <c10/core/Storage.h>

#include <cstddef>

#include "retinue/ipc/archive.h"

/// CUDA storages in messages. In builds without RETINUE_CUDA none of it is there but kSendsCuda.
///
/// The owner of the memory lends it: a block of job memory, the lease, says how to map it, and is held by whoever has
/// it mapped and by messages on their way. When the lease is gone, the owner lets the memory go; so a receiver that is
/// killed gives back what it had. Receivers may send it on, also back to its owner.
namespace retinue {

#ifdef RETINUE_CUDA
inline constexpr bool kSendsCuda = true;
#else
inline constexpr bool kSendsCuda = false;
#endif

/// Lends the storage. What the current stream was given so far is done before a receiver's stream goes on. Of one of 0
/// bytes its device travels alone.
/// Errors: UsageError for this process's own memory in a returned value, which is read when that is gone, and for
/// memory that LibTorch's allocator did not allocate; c10::Error of the driver.
void write_cuda_storage(detail::ValueOutput& output, const c10::Storage& storage);

/// The storage in this process: the owner's own, the one that is mapped already, or a new one of at least `bytes`
/// bytes. Errors: UsageError where the owner has ended, where its device is not visible to this process, or CUDA not to
/// be had.
c10::Storage read_cuda_storage(detail::ValueInput& input, std::size_t bytes);

/// Lets go of what was lent and has come back. Returns whether there was any.
bool collect_cuda_storages();

}  // namespace retinue
