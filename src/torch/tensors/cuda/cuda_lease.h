#pragma once

#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include <array>
#include <cstdint>
#include <string>

#include "retinue/ipc/shared_block.h"

namespace retinue {

/// Processes may number devices differently.
using DeviceUuid = std::array<char, 16>;

/// What a receiver needs to map a storage.
struct Lease {
  std::int32_t owner;  ///< Process id.
  DeviceUuid device;
  std::uint64_t offset;  ///< Of the storage in what the handle opens.
  std::uint64_t bytes;   ///< Of the storage.
  std::string handle;
};

/// A block of job memory with the storage's lease. Errors: UsageError for memory that LibTorch's allocator did not
/// allocate; SharedMemoryExhausted.
SharedBlock make_lease(const c10::Storage& storage);

/// A copy: what is checked here can't be overwritten by others. Errors: UsageError for a block that holds none.
Lease lease_in(const SharedBlock& block);

DeviceUuid uuid_of(c10::DeviceIndex device);
/// This process's number for the device. Errors: UsageError if it does not see that.
c10::DeviceIndex device_with(const DeviceUuid& uuid);

}  // namespace retinue
