#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "ipc/memory/context_table.h"
#include "ipc/memory/job_layout.h"
#include "ipc/memory/locked_blocks.h"

/// What job memory's tables say, to be compared with what they said before.
namespace retinue::test {

/// All that the block table says, but for hints and generations.
struct Picture {
  struct Block {
    std::uint64_t first_page, pages, bytes;
    std::uint32_t references, carried, holder, held;
    std::vector<std::uint32_t> owners;
    friend bool operator==(const Block&, const Block&) = default;
  };
  std::map<std::uint32_t, Block> blocks;
  std::vector<std::uint32_t> pages;  ///< Up to the last one that is in use.
  friend bool operator==(const Picture&, const Picture&) = default;
};

/// Pages belong to the blocks that say so, and all others are free.
inline void check_map(const Picture& picture) {
  std::vector<std::uint32_t> expected(picture.pages.size(), 0);
  for (const auto& [index, block] : picture.blocks) {
    EXPECT_LE(block.first_page + block.pages, expected.size());
    for (std::uint64_t page = block.first_page; page < block.first_page + block.pages; ++page) {
      EXPECT_EQ(expected.at(page), 0u) << "a page of two blocks";
      expected.at(page) = index + 1;
    }
  }
  EXPECT_EQ(picture.pages, expected);
}

inline Picture look_at_tables(const JobMemory& memory) {
  const LockedBlocks locked(memory);  // Repairs what is to be repaired.
  const BlockTable& table = locked.table();
  Picture picture;
  for (std::uint32_t i = 0; i < kMaxBlocks; ++i) {
    const BlockDescriptor& block = table.descriptors[i];
    if (block.used.load() == 0) continue;
    EXPECT_LT(i, table.descriptor_end);
    Picture::Block seen{block.first_page,    block.pages,  block.bytes,      block.references,
                        block.carried_count, block.holder, block.held_count, {}};
    for (std::uint32_t slot = 0; slot < kMaxProcesses; ++slot)
      if ((block.owners[slot / 64].load() >> (slot % 64) & 1) != 0) seen.owners.push_back(slot);
    picture.blocks.emplace(i, std::move(seen));
  }
  picture.pages.assign(locked.page_map(), locked.page_map() + table.end_page);
  check_map(picture);
  // Hints may lie too low, which costs a search, but never too high: what lies below would be lost.
  const auto is_used = [&](std::uint32_t i) { return picture.blocks.contains(i); };
  for (std::uint32_t i = 0; i < table.lowest_free_descriptor; ++i) EXPECT_TRUE(is_used(i)) << i;
  for (std::uint64_t page = 0; page < std::min(table.lowest_free_page, table.end_page); ++page)
    EXPECT_NE(picture.pages[page], 0u) << page;
  while (!picture.pages.empty() && picture.pages.back() == 0) picture.pages.pop_back();
  return picture;
}

inline std::vector<std::uint32_t> reserved_slots(const JobMemory& memory) {
  std::vector<std::uint32_t> slots;
  for (std::uint32_t i = 0; i < memory.header().process_end.load(); ++i) {
    const ProcessSlot& slot = process_slot(memory, i);
    if (slot.reserved_by.load() != 0 || (i > kGuardianSlot && slot.state.load() != ProcessState::kFree))
      slots.push_back(i);
  }
  return slots;
}
inline std::vector<std::uint32_t> reserved_contexts(const JobMemory& memory) {
  std::vector<std::uint32_t> contexts;
  for (std::uint32_t i = 0; i < memory.header().context_end.load(); ++i)
    if (context_record(memory, i).reserved_by.load() != 0 ||
        context_record(memory, i).state.load() != ContextRecord::kFree)
      contexts.push_back(i);
  return contexts;
}

}  // namespace retinue::test
