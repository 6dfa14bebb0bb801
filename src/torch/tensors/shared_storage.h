#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <functional>
#include <memory>

#include "retinue/ipc/job_memory.h"
#include "retinue/ipc/shared_block.h"

namespace retinue {

/// A block of job memory as a storage's data pointer; its deleter lets the block go. 0 bytes give a null pointer.
c10::DataPtr allocate_shared(const std::shared_ptr<JobMemory>& memory, std::size_t bytes);

/// The same with the memory itself as the data pointer's context, as LibTorch's raw_allocate() needs it.
c10::DataPtr allocate_shared_raw(const std::shared_ptr<JobMemory>& memory, std::size_t bytes);
/// Lets a block of allocate_shared_raw() go. False: `data` is other memory.
bool free_shared_raw(const void* data);

/// Whether `data` came from one of these.
bool is_shared(const c10::DataPtr& data);

/// Moves the storage into job memory where it is not there yet; all tensors on it follow and do not notice. Returns the
/// memory that it had before, if any, whose freeing may take as long as the copying. `announce` is called where the
/// copying goes on for some 100 us.
/// Errors: UsageError for memory that is not the CPU's; SharedMemoryExhausted.
c10::DataPtr share_storage(const c10::Storage& storage, const std::shared_ptr<JobMemory>& memory,
                           const std::function<void()>& announce);

/// Undoes share_storage() where the storage could not be sent after all; it stays shared where there is no memory.
void unshare_storage(const c10::Storage& storage, bool is_resizable) noexcept;

/// The block under a shared storage; remembers the storage, so that received_storage() finds it.
const SharedBlock& sent_block(const c10::Storage& storage);

/// The storage on a block in this process: the one that is there already, or a new one, which holds the block. Errors:
/// UsageError where there is no such block.
c10::Storage received_storage(const std::shared_ptr<JobMemory>& memory, const BlockHandle& handle, std::size_t bytes);

/// The same two for any storage that a block stands for. Threads: `make` is called with a lock that no other process
/// waits for.
void remember_storage(const SharedBlock& block, const c10::Storage& storage);
c10::Storage known_storage(const SharedBlock& block, std::size_t bytes, const std::function<c10::Storage()>& make);

}  // namespace retinue
