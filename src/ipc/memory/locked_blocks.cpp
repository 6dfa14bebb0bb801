#include "ipc/memory/locked_blocks.h"

#include <fmt/format.h>

#include <algorithm>

#include "os/testing/crash_point.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

bool is_used(const BlockDescriptor& block) {
  return block.used.load(std::memory_order_relaxed) != 0;
}

bool has_owner(const BlockDescriptor& block) {
  return block.references != 0 || block.holder != 0 ||
         std::any_of(std::begin(block.owners), std::end(block.owners),
                     [](const auto& word) { return word.load(std::memory_order_relaxed) != 0; });
}

}  // namespace

LockedBlocks::LockedBlocks(const JobMemory& memory)
    : memory_(memory), lock_(memory.header().blocks.mutex, memory.lock_patience()) {
  if (lock_.owner_died()) repair();
}

void LockedBlocks::mark_pages(const BlockDescriptor& block, std::uint32_t value) const {
  std::fill_n(page_map() + block.first_page, block.pages, value);
}

BlockDescriptor* LockedBlocks::find(const BlockHandle& handle) const {
  BlockTable& blocks = table();
  if (handle.index >= kMaxBlocks) return nullptr;
  BlockDescriptor& block = blocks.descriptors[handle.index];
  return is_used(block) && is_handle_of(blocks, block, handle) ? &block : nullptr;
}

BlockDescriptor& LockedBlocks::alive(const BlockHandle& handle, const char* operation) const {
  BlockDescriptor* const block = find(handle);
  if (block == nullptr)
    throw UsageError(fmt::format("JobMemory::{}: block {} at offset {} is not alive (released twice?)", operation,
                                 handle.index, handle.offset));
  return *block;
}

std::uint64_t LockedBlocks::offset_of(const BlockDescriptor& block) const {
  return table().data_offset + block.first_page * table().page_bytes;
}

ReferenceList& LockedBlocks::list(const BlockDescriptor& block, std::uint32_t index) const {
  return *memory_.at<ReferenceList>(offset_of(block) + block.first_list + std::uint64_t{index} * block.list_stride);
}

template <class Act>
void LockedBlocks::for_each_carried(BlockDescriptor& block, Act act) const {
  const auto* const carried = memory_.at<BlockHandle>(offset_of(block));
  for (std::uint32_t i = 0; i < block.carried_count; ++i) act(BlockHandle(carried[i]));
  std::uint32_t left = block.listed;  // A long row of empty lists takes long to look at.
  for (std::uint32_t i = 0; left != 0 && i < block.list_count; ++i) {
    ReferenceList& list = this->list(block, i);
    const std::uint32_t count = std::min({list.count, block.list_capacity, left});
    for (std::uint32_t each = 0; each < count; ++each) act(BlockHandle(list.carried()[each]));
    left -= count;
  }
}

void LockedBlocks::fill(BlockDescriptor& block, ReferenceList& list, std::span<const BlockHandle> carried) const {
  std::copy(carried.begin(), carried.end(), list.carried());
  std::atomic_signal_fence(std::memory_order_release);  // As in JobMemory::carry().
  RETINUE_CRASH_POINT();
  list.count = static_cast<std::uint32_t>(carried.size());
  RETINUE_CRASH_POINT();
  block.listed += list.count;
  for (const BlockHandle& other : carried) {
    RETINUE_CRASH_POINT();
    ++table().descriptors[other.index].references;
  }
}

/// Who is killed in here leaves the counts to repair(). The list's own goes last: others look at it without the lock.
void LockedBlocks::clear(BlockDescriptor& block, ReferenceList& list) const {
  const std::uint32_t count = std::min(list.count, block.list_capacity);
  for (std::uint32_t i = 0; i < count; ++i) {
    const BlockHandle handle = list.carried()[i];
    BlockDescriptor* const other = find(handle);
    if (other == nullptr || other->references == 0) continue;
    RETINUE_CRASH_POINT();
    --other->references;
    free_if_unowned(handle.index);
  }
  RETINUE_CRASH_POINT();
  block.listed -= std::min(count, block.listed);
  std::atomic_signal_fence(std::memory_order_release);
  list.count = 0;
}

/// A list through the descriptors: nothing here may fail for want of memory.
void LockedBlocks::free_if_unowned(std::uint32_t index) const {
  if (!is_used(table().descriptors[index]) || has_owner(table().descriptors[index])) return;
  table().descriptors[index].next_unowned = 0;
  std::uint32_t unowned = index + 1;
  const auto free_later = [&](std::uint32_t other) {
    if (has_owner(table().descriptors[other])) return;
    table().descriptors[other].next_unowned = unowned;
    unowned = other + 1;
  };
  while (unowned != 0) {
    const std::uint32_t next = unowned - 1;
    BlockDescriptor& block = table().descriptors[next];
    unowned = block.next_unowned;
    RETINUE_CRASH_POINT();
    block.used.store(0, std::memory_order_relaxed);
    RETINUE_CRASH_POINT();
    for_each_carried(block, [&](BlockHandle handle) {
      BlockDescriptor* const other = find(handle);
      if (other == nullptr || other->references == 0) return;
      --other->references;
      RETINUE_CRASH_POINT();
      free_later(handle.index);
    });
    for (std::uint32_t i = 0; block.held_count != 0 && i < table().descriptor_end; ++i) {
      if (table().descriptors[i].holder != next + 1) continue;
      table().descriptors[i].holder = 0;
      RETINUE_CRASH_POINT();
      --block.held_count;
      free_later(i);
    }
    mark_pages(block, 0);
    RETINUE_CRASH_POINT();
    table().lowest_free_page = std::min(table().lowest_free_page, block.first_page);
    table().lowest_free_descriptor = std::min(table().lowest_free_descriptor, next);
  }
}

void LockedBlocks::repair() const {
  RETINUE_CRASH_POINT();
  repair_pages();
  RETINUE_CRASH_POINT();
  count_references();
  RETINUE_CRASH_POINT();
  for (std::uint32_t i = 0; i < table().descriptor_end; ++i) free_if_unowned(i);
}

/// Makes the page map again from the descriptors alone.
void LockedBlocks::repair_pages() const {
  BlockTable& blocks = table();
  std::uint64_t end = 0;
  // An entry counts as used only after `descriptor_end` was set: those behind that need no look, which would commit
  // them.
  for (std::uint32_t i = 0; i < blocks.descriptor_end; ++i) {
    const BlockDescriptor& block = blocks.descriptors[i];
    if (is_used(block)) end = std::max(end, block.first_page + block.pages);
  }
  blocks.end_page = std::max(blocks.end_page, end);
  std::fill_n(page_map(), blocks.end_page, 0u);
  RETINUE_CRASH_POINT();
  for (std::uint32_t i = 0; i < blocks.descriptor_end; ++i)
    if (is_used(blocks.descriptors[i])) mark_pages(blocks.descriptors[i], i + 1);
  blocks.lowest_free_page = 0;
  blocks.lowest_free_descriptor = 0;
}

std::uint32_t LockedBlocks::count_listed(const BlockDescriptor& block) const {
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < block.list_count; ++i) count += std::min(list(block, i).count, block.list_capacity);
  return count;
}

/// Counts again who carries and who holds whom.
void LockedBlocks::count_references() const {
  BlockTable& blocks = table();
  for (std::uint32_t i = 0; i < blocks.descriptor_end; ++i)
    blocks.descriptors[i].references = blocks.descriptors[i].held_count = 0;
  RETINUE_CRASH_POINT();
  for (std::uint32_t i = 0; i < blocks.descriptor_end; ++i) {
    BlockDescriptor& block = blocks.descriptors[i];
    if (!is_used(block)) continue;
    block.listed = count_listed(block);
    for_each_carried(block, [this](BlockHandle handle) {
      if (BlockDescriptor* const other = find(handle); other != nullptr) ++other->references;
    });
    if (block.holder == 0) continue;
    BlockDescriptor& holder = blocks.descriptors[block.holder - 1];
    if (is_used(holder)) {
      ++holder.held_count;
    } else {
      block.holder = 0;
    }
  }
}

std::uint64_t owner_bit(std::uint32_t process_slot) {
  if (process_slot >= kMaxProcesses)
    throw UsageError("job memory: this process has no slot in the job yet (was its Runtime made?)");
  return std::uint64_t{1} << (process_slot % 64);
}

}  // namespace retinue
