#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "os/sync/robust_mutex.h"
#include "retinue/ipc/block_handle.h"

namespace retinue {

constexpr std::uint32_t kMaxBlocks = 131'072;
/// Of these, for what the runtime itself needs, so that a program that has used up the others can start ranks.
constexpr std::uint32_t kRuntimeBlocks = 1024;
constexpr std::uint32_t kOwnerWords = 16;  ///< 64 process slots each.

/// A list, inside a block, of blocks that it carries besides; their handles follow it. Guarded by the table's mutex.
struct ReferenceList {
  std::uint32_t count;
  std::uint32_t unused;

  BlockHandle* carried() { return reinterpret_cast<BlockHandle*>(this + 1); }
};

/// One block of job memory and who owns it: processes, blocks that carry it, and a block that holds it.
struct BlockDescriptor {
  std::atomic<std::uint32_t>
      used;  ///< Written last when a block is made and first when it goes: repair trusts it alone.
  std::uint64_t first_page;
  std::uint64_t pages;
  std::uint64_t bytes;
  std::uint32_t generation;     ///< Counts the blocks that this descriptor stood for.
  std::uint32_t references;     ///< How often blocks carry this one.
  std::uint32_t carried_count;  ///< BlockHandles at the block's start: what it carries.
  std::uint32_t holder;         ///< Index + 1 of the block that holds this one; 0: none.
  std::uint32_t held_count;     ///< Blocks that this one holds.
  std::uint32_t next_unowned;   ///< Index + 1 of the next one to be freed, while that goes on; 0: none.
  std::uint32_t list_count;     ///< ReferenceLists in the block.
  std::uint32_t listed;         ///< Handles on all of them.
  std::uint32_t list_capacity;  ///< Handles for which each has space.
  std::uint32_t list_stride;    ///< Bytes from one to the next.
  std::uint32_t first_list;     ///< Bytes from the block's start.
  std::atomic<std::uint64_t> owners[kOwnerWords];
};

/// Which pages belong to which block. Guarded by `mutex`; a holder that died is repaired from the descriptors.
struct BlockTable {
  RobustMutex mutex;
  RobustMutex commit_mutex;       ///< Held while pages get memory, which takes long. Locked before `mutex`.
  std::uint64_t data_offset;      ///< Bytes from the start of the memory to page 0.
  std::uint64_t page_map_offset;  ///< To a uint32 per page: index of its block + 1, 0 for a free page.
  std::uint64_t page_count;
  std::uint64_t page_bytes;
  std::uint64_t end_page;                      ///< All pages from here on were never used.
  std::atomic<std::uint64_t> committed_pages;  ///< Pages below this have memory. Raised with `commit_mutex` held.
  std::uint64_t lowest_free_page;              ///< No free page below: where a search begins.
  std::uint32_t descriptor_end;                ///< Descriptors from here on were never used.
  std::uint32_t lowest_free_descriptor;
  BlockDescriptor descriptors[kMaxBlocks];
};

}  // namespace retinue
