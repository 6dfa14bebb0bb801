#include "ipc/memory/block_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "ipc/memory/job_layout.h"
#include "ipc/memory/locked_blocks.h"
#include "os/machine/memory.h"
#include "os/testing/crash_point.h"
#include "retinue/base/error.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {
namespace {

constexpr std::size_t kSmallBytes = std::size_t{64} << 10;     // Of the first huge page, as long as that is enough.
constexpr std::size_t kHeadroomBytes = std::size_t{64} << 20;  // Left to the rest of the machine.

/// First fit from below, so that pages that were used before are used again; large blocks begin with a huge page.
/// Returns page_count where none is left.
std::uint64_t find_pages(const LockedBlocks& blocks, std::uint64_t wanted) {
  const BlockTable& table = blocks.table();
  const std::uint32_t* map = blocks.page_map();
  const std::uint64_t huge = kHugePageBytes / table.page_bytes;
  const std::uint64_t unit = wanted >= huge ? huge : 1;
  std::uint64_t start = round_up(table.lowest_free_page, unit);
  std::uint64_t page = start;
  while (page < table.end_page && page - start < wanted) {
    if (map[page] == 0) {
      ++page;
      continue;
    }
    const BlockDescriptor& block = table.descriptors[map[page] - 1];
    start = page = round_up(block.first_page + block.pages, unit);
  }
  return start + wanted <= table.page_count ? start : table.page_count;
}

/// `slot`: kNoSlot for blocks that no process owns.
std::string name_of(const JobMemory& memory, std::uint32_t slot) {
  if (slot == JobMemory::kNoSlot) return "messages in flight";
  const ProcessSlot& process = process_slot(memory, slot);
  const auto pid = process.pid.load(std::memory_order_relaxed);
  if (slot == kProgramSlot) return fmt::format("the program (pid {})", pid);
  if (slot == kGuardianSlot) return fmt::format("the guardian (pid {})", pid);
  return fmt::format("rank {} (pid {})", process.rank, pid);
}

/// A process that has next to nothing is not named beside others.
std::string largest_holders(const JobMemory& memory, const LockedBlocks& blocks) {
  const BlockTable& table = blocks.table();
  std::map<std::uint32_t, std::size_t> bytes_by_slot;
  for (std::uint32_t i = 0; i < table.descriptor_end; ++i) {
    const BlockDescriptor& block = table.descriptors[i];
    if (block.used.load(std::memory_order_relaxed) == 0) continue;
    const std::size_t bytes = block.pages * table.page_bytes;
    bool is_owned = false;
    for (std::uint32_t word = 0; word < kOwnerWords; ++word)
      for (std::uint64_t bits = block.owners[word].load(std::memory_order_relaxed); bits != 0; bits &= bits - 1) {
        bytes_by_slot[word * 64 + static_cast<std::uint32_t>(__builtin_ctzll(bits))] += bytes;
        is_owned = true;
      }
    if (!is_owned) bytes_by_slot[JobMemory::kNoSlot] += bytes;
  }
  std::vector<std::pair<std::size_t, std::uint32_t>> holders;
  for (const auto& [slot, bytes] : bytes_by_slot) holders.emplace_back(bytes, slot);
  std::sort(holders.rbegin(), holders.rend());
  if (holders.size() > 4) holders.resize(4);
  std::string text;
  for (const auto& [bytes, slot] : holders)
    if (text.empty() || bytes >> 20 != 0)
      text += fmt::format("{}{} {} MiB", text.empty() ? "" : ", ", name_of(memory, slot), bytes >> 20);
  return text.empty() ? "nobody" : text;
}

/// Gives pages up to `end` memory, piece by piece, so that what was reached stays. Others can use the table meanwhile:
/// the kernel may take minutes.
/// As huge pages; but a job that shares little pays for no more than the beginning of the first one.
void commit(const JobMemory& memory, std::uint64_t end) {
  BlockTable& table = memory.header().blocks;
  const RobustLock lock(table.commit_mutex, memory.lock_patience(), &table.committed_pages);
  std::uint64_t committed = table.committed_pages.load(std::memory_order_relaxed);
  if (end <= committed) return;
  const std::uint64_t huge = kHugePageBytes / table.page_bytes;
  const std::uint64_t small = std::max<std::uint64_t>(1, kSmallBytes / table.page_bytes);
  const std::uint64_t target = std::min(round_up(end, end < huge ? small : huge), table.page_count);
  const std::size_t bytes = (target - committed) * table.page_bytes;
  const auto holders = [&] {
    const LockedBlocks blocks(memory);
    return largest_holders(memory, blocks);
  };
  if (target > huge || bytes > kSmallBytes) {
    const std::size_t headroom = memory_headroom_bytes();
    if (bytes + kHeadroomBytes > headroom)
      throw SharedMemoryExhausted(fmt::format(
          "job memory: {} MiB more are needed, but machine and memory cgroup have only {} MiB left, of which {} MiB "
          "stay reserved; largest holders: {}",
          bytes >> 20, headroom >> 20, kHeadroomBytes >> 20, holders()));
  }
  while (committed < target) {
    const std::uint64_t piece = committed / huge * huge;
    const bool is_huge = target >= piece + huge;
    const std::uint64_t first = is_huge ? piece : committed;
    const std::uint64_t last = is_huge ? piece + huge : target;
    const int error =
        commit_pages(memory.base() + table.data_offset + first * table.page_bytes, (last - first) * table.page_bytes);
    if (error != 0)
      throw SharedMemoryExhausted(fmt::format(
          "job memory: the kernel refused {} MiB more (errno {}); largest holders: {}", bytes >> 20, error, holders()));
    RETINUE_CRASH_POINT();
    committed = last;
    table.committed_pages.store(committed, std::memory_order_relaxed);  // The table's mutex orders what follows.
  }
}

std::uint32_t find_descriptor(const JobMemory& memory, const LockedBlocks& blocks, BlockUse use) {
  const BlockTable& table = blocks.table();
  const std::uint32_t end = use == BlockUse::kRuntime ? kMaxBlocks : kMaxBlocks - kRuntimeBlocks;
  for (std::uint32_t i = table.lowest_free_descriptor; i < end; ++i)
    if (table.descriptors[i].used.load(std::memory_order_relaxed) == 0) return i;
  throw SharedMemoryExhausted(
      fmt::format("job memory: all {} blocks are in use, for example by shared tensors; largest holders: {}", end,
                  largest_holders(memory, blocks)));
}

}  // namespace

BlockHandle JobMemory::allocate(std::size_t bytes, BlockUse use) {
  check_process("allocate");
  const std::uint64_t bit = owner_bit(own_slot());
  for (std::uint64_t end = 0;; commit(*this, end)) {
    const std::lock_guard counting(holds_mutex_);
    const LockedBlocks blocks(*this);
    BlockTable& table = blocks.table();
    const std::uint64_t pages = std::max<std::uint64_t>(1, bytes / table.page_bytes + (bytes % table.page_bytes != 0));
    const std::uint64_t first = find_pages(blocks, pages);
    if (first == table.page_count)
      throw SharedMemoryExhausted(fmt::format(
          "job memory: no free space for {} bytes within its capacity of {} MiB (raise RuntimeOptions::job_memory "
          "or RETINUE_JOB_MEMORY); largest holders: {}",
          bytes, capacity_bytes() >> 20, largest_holders(*this, blocks)));
    const std::uint32_t index = find_descriptor(*this, blocks, use);
    end = first + pages;
    if (end > table.committed_pages.load(std::memory_order_relaxed)) continue;
    BlockDescriptor& block = table.descriptors[index];
    RETINUE_CRASH_POINT();
    block.first_page = first;
    block.pages = pages;
    block.bytes = bytes;
    ++block.generation;
    block.references = block.carried_count = block.holder = block.held_count = 0;
    block.list_count = block.listed = 0;
    for (auto& word : block.owners) word.store(0, std::memory_order_relaxed);
    block.owners[own_slot() / 64].store(bit, std::memory_order_relaxed);
    RETINUE_CRASH_POINT();
    table.end_page = std::max(table.end_page, end);
    table.descriptor_end = std::max(table.descriptor_end, index + 1);
    holds_of(index, block.generation) = 1;
    RETINUE_CRASH_POINT();
    block.used.store(1, std::memory_order_release);
    RETINUE_CRASH_POINT();
    blocks.mark_pages(block, index + 1);
    RETINUE_CRASH_POINT();
    if (first == table.lowest_free_page) table.lowest_free_page = end;
    table.lowest_free_descriptor = index + 1;
    return {block.generation, index, table.data_offset + first * table.page_bytes, bytes};
  }
}

std::optional<BlockHandle> JobMemory::find(const void* pointer) const {
  if (!contains(pointer)) return std::nullopt;
  const std::uint64_t offset = offset_of(pointer);
  if (offset < header().blocks.data_offset) return std::nullopt;
  const LockedBlocks blocks(*this);
  const BlockTable& table = blocks.table();
  const std::uint64_t page = (offset - table.data_offset) / table.page_bytes;
  if (page >= table.end_page || blocks.page_map()[page] == 0) return std::nullopt;
  const std::uint32_t index = blocks.page_map()[page] - 1;
  const BlockDescriptor& block = table.descriptors[index];
  return BlockHandle{block.generation, index, table.data_offset + block.first_page * table.page_bytes, block.bytes};
}

std::size_t JobMemory::allocated_bytes() const {
  const LockedBlocks blocks(*this);
  const BlockTable& table = blocks.table();
  std::size_t bytes = 0;
  for (std::uint32_t i = 0; i < table.descriptor_end; ++i)
    if (table.descriptors[i].used.load(std::memory_order_relaxed) != 0)
      bytes += table.descriptors[i].pages * table.page_bytes;
  return bytes;
}

}  // namespace retinue
