#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "retinue/ipc/shared_block.h"

/// Bytes in a block of job memory, with the blocks that they refer to: whoever owns the payload owns those.
namespace retinue {

/// The block begins with the handles of what it carries; the bytes follow. It is held once by this process.
/// Errors: SharedMemoryExhausted.
BlockHandle store_payload(JobMemory& memory, std::initializer_list<std::string_view> pieces,
                          const std::vector<SharedBlock>& references, BlockUse use = BlockUse::kData);

/// The bytes, where they lie. The caller holds the payload.
std::string_view payload_bytes(const JobMemory& memory, const BlockHandle& payload);

/// What the payload carries, held by this process.
std::vector<SharedBlock> payload_references(const std::shared_ptr<JobMemory>& memory, const BlockHandle& payload);

}  // namespace retinue
