#pragma once

#include <cstdint>
#include <span>

#include "ipc/memory/block_table.h"
#include "ipc/memory/job_layout.h"
#include "os/sync/robust_mutex.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {

/// Whether all of the handle is the block's: one that came from elsewhere could reach further than it.
inline bool is_handle_of(const BlockTable& table, const BlockDescriptor& block, const BlockHandle& handle) {
  return block.generation == handle.generation && block.bytes == handle.bytes &&
         table.data_offset + block.first_page * table.page_bytes == handle.offset;
}

/// The block table while this process has its lock. A holder's death is repaired first: everything but the descriptors
/// follows from them.
/// Errors: TimeoutError when another process keeps the lock too long.
class LockedBlocks {
 public:
  explicit LockedBlocks(const JobMemory& memory);

  BlockTable& table() const noexcept { return memory_.header().blocks; }
  /// A uint32 per page: index of its block + 1, 0 for a free page.
  std::uint32_t* page_map() const noexcept { return memory_.at<std::uint32_t>(table().page_map_offset); }

  /// Null if the block is not alive.
  BlockDescriptor* find(const BlockHandle& handle) const;
  /// Errors: UsageError, naming `operation`, if the block is not alive.
  BlockDescriptor& alive(const BlockHandle& handle, const char* operation) const;
  /// A list of a block that has so many.
  ReferenceList& list(const BlockDescriptor& block, std::uint32_t index) const;
  /// Puts blocks that are alive on the list, which is empty and has space for them.
  void fill(BlockDescriptor& block, ReferenceList& list, std::span<const BlockHandle> carried) const;
  /// Lets go of what is on it.
  void clear(BlockDescriptor& block, ReferenceList& list) const;
  void mark_pages(const BlockDescriptor& block, std::uint32_t value) const;

  /// Frees the block if nobody owns it any more, and what it alone carried or held.
  void free_if_unowned(std::uint32_t index) const;

 private:
  void repair() const;
  void repair_pages() const;
  void count_references() const;
  std::uint64_t offset_of(const BlockDescriptor& block) const;
  /// `act` is given the handle of each block that the block carries, in its first bytes and on lists.
  template <class Act>
  void for_each_carried(BlockDescriptor& block, Act act) const;
  std::uint32_t count_listed(const BlockDescriptor& block) const;

  const JobMemory& memory_;
  RobustLock lock_;
};

/// The bit of a process in BlockDescriptor::owners[process_slot / 64]. Errors: UsageError without a slot.
std::uint64_t owner_bit(std::uint32_t process_slot);

}  // namespace retinue
