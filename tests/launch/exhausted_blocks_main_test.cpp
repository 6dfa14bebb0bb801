// A program that has used up job memory's blocks can still start ranks, which can still form groups.
#include <gtest/gtest.h>
#include <array>
#include <span>
#include <string>
#include <vector>

#include "ipc/memory/block_table.h"
#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "retinue/ipc/shared_block.h"
#include "retinue/launch/spawn.h"

using retinue::SharedBlock;

namespace {

int sum_of_ranks(retinue::RankContext& context) {
  retinue::Communicator group(context.world());
  int sum = context.rank() + 1;
  group.all_reduce(std::span(&sum, 1));
  std::array<int, 2> all{};
  group.all_gather(std::span<const int>(&sum, 1), std::span(all));
  return all[0] + all[1];
}

TEST(ExhaustedBlocks, LeaveSomeToTheRuntime) {
  std::vector<SharedBlock> blocks;
  std::string error;
  try {
    for (;;) blocks.push_back(SharedBlock::allocate(1));
  } catch (const retinue::SharedMemoryExhausted& exhausted) {
    error = exhausted.what();
  }
  EXPECT_NE(error.find("blocks are in use"), std::string::npos) << error;
  EXPECT_GT(blocks.size(), 100'000u);
  EXPECT_LE(blocks.size(), retinue::kMaxBlocks - retinue::kRuntimeBlocks);
  for (int round = 0; round < 3; ++round) {
    const retinue::RunResult result = retinue::spawn<sum_of_ranks>({.nprocs = 2, .join = false}).wait();
    ASSERT_TRUE(result.ok()) << result.failures()[0].message;
    for (const auto& [rank, value] : result.values<int>()) EXPECT_EQ(value, 6) << rank;
  }
  EXPECT_THROW(SharedBlock::allocate(1), retinue::SharedMemoryExhausted);
  blocks.pop_back();
  EXPECT_NO_THROW(blocks.push_back(SharedBlock::allocate(1)));
}

}  // namespace
