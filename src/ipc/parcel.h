#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "retinue/ipc/shared_block.h"

/// Bytes in a block of job memory, with the blocks that they refer to: whoever owns the parcel owns those.
namespace retinue {

/// The block begins with the handles of what it carries; the bytes follow. It is held once by this process.
/// Errors: SharedMemoryExhausted.
BlockHandle store_parcel(JobMemory& memory, std::initializer_list<std::string_view> pieces,
                         const std::vector<SharedBlock>& references, BlockUse use = BlockUse::kData);

/// The bytes, where they lie. The caller holds the parcel.
std::string_view parcel_bytes(const JobMemory& memory, const BlockHandle& parcel);

/// What the parcel carries, held by this process.
std::vector<SharedBlock> parcel_references(const std::shared_ptr<JobMemory>& memory, const BlockHandle& parcel);

}  // namespace retinue
