// How members of a crowd share CPUs.
#include "collective/wait/better_cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "os/machine/cpus.h"
#include "retinue/collective/communicator.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

using Cpus = std::vector<int>;

TEST(BetterCpu, IsTheEmptiestWhereTheOwnHasTooMany) {
  EXPECT_EQ(better_cpu(Cpus{0, 0, 0, 1}, 0, {0, 1}), 1);
  EXPECT_EQ(better_cpu(Cpus{2, 2, 0, 5, 5}, 2, {0, 2, 5, 7}), 7);
}

TEST(BetterCpu, IsNoneWhereItWouldOnlyChangePlaces) {
  EXPECT_EQ(better_cpu(Cpus{0, 0, 1}, 0, {0, 1}), std::nullopt);
  EXPECT_EQ(better_cpu(Cpus{0, 0, 0, 1}, 1, {0, 1}), std::nullopt);
  EXPECT_EQ(better_cpu(Cpus{0, 1, 2, 3}, 2, {0, 1, 2, 3}), std::nullopt);
}

TEST(BetterCpu, IsOneOfThoseAllowed) {
  EXPECT_EQ(better_cpu(Cpus{0, 0, 0, 0}, 0, {0}), std::nullopt);
  EXPECT_EQ(better_cpu(Cpus{3, 3, 3, 1}, 3, {1, 3}), 1);
  EXPECT_EQ(better_cpu(Cpus{9, 9, 9}, 9, {0, 1}), std::nullopt);  // Moved out of its set a moment ago.
}

TEST(BetterCpu, CountsNobodyWhosePlaceIsUnknown) {
  EXPECT_EQ(better_cpu(Cpus{-1, -1, 0, 0, 1}, 0, {0, 1}), std::nullopt);
}

/// Members that all go on like this come to an even spread, and stay there.
TEST(BetterCpu, SettlesACrowd) {
  const std::vector<int> cpus = {0, 1, 4, 6, 7};
  Cpus members(23, 4);
  for (int round = 0; round < 2; ++round)
    for (int& member : members)
      if (const auto better = better_cpu(members, member, cpus)) member = *better;
  for (const int cpu : cpus) {
    EXPECT_GE(std::count(members.begin(), members.end(), cpu), 4);
    EXPECT_LE(std::count(members.begin(), members.end(), cpu), 5);
  }
  for (const int member : members) EXPECT_EQ(better_cpu(members, member, cpus), std::nullopt);
}

TEST(MoveToCpu, LeavesThePlacesWhereTheThreadMayRun) {
  const std::vector<int> before = allowed_cpus();
  for (const int cpu : before) {
    EXPECT_TRUE(move_to_cpu(cpu, before));
    EXPECT_EQ(allowed_cpus(), before);
  }
  EXPECT_FALSE(move_to_cpu(before.back() + 4096, before));
  EXPECT_EQ(allowed_cpus(), before);
}

TEST(BetterCpu, OfACrowdLeavesItsMembersWhereTheyMayRun) {
  const std::vector<int> before = allowed_cpus();
  run_ranks(static_cast<int>(before.size()) * 3 + 1, [&before](const JobGroup& group) {
    Communicator communicator(group);
    for (int i = 0; i < 500; ++i) {
      int one = 1;
      communicator.all_reduce(std::span(&one, 1));
      ASSERT_EQ(one, communicator.size());
    }
    EXPECT_EQ(allowed_cpus(), before);
  });
}

}  // namespace
}  // namespace retinue::test
