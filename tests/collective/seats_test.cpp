// How members of a crowd share CPUs.
#include "collective/seats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "os/cpus.h"
#include "retinue/collective/communicator.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

using Seats = std::vector<int>;

TEST(BetterSeat, IsTheEmptiestWhereTheOwnHasTooMany) {
  EXPECT_EQ(better_seat(Seats{0, 0, 0, 1}, 0, {0, 1}), 1);
  EXPECT_EQ(better_seat(Seats{2, 2, 0, 5, 5}, 2, {0, 2, 5, 7}), 7);
}

TEST(BetterSeat, IsNoneWhereItWouldOnlyChangePlaces) {
  EXPECT_EQ(better_seat(Seats{0, 0, 1}, 0, {0, 1}), std::nullopt);
  EXPECT_EQ(better_seat(Seats{0, 0, 0, 1}, 1, {0, 1}), std::nullopt);
  EXPECT_EQ(better_seat(Seats{0, 1, 2, 3}, 2, {0, 1, 2, 3}), std::nullopt);
}

TEST(BetterSeat, IsOneOfThoseAllowed) {
  EXPECT_EQ(better_seat(Seats{0, 0, 0, 0}, 0, {0}), std::nullopt);
  EXPECT_EQ(better_seat(Seats{3, 3, 3, 1}, 3, {1, 3}), 1);
  EXPECT_EQ(better_seat(Seats{9, 9, 9}, 9, {0, 1}), std::nullopt);  // Moved out of its set a moment ago.
}

TEST(BetterSeat, CountsNobodyWhosePlaceIsUnknown) {
  EXPECT_EQ(better_seat(Seats{-1, -1, 0, 0, 1}, 0, {0, 1}), std::nullopt);
}

/// Members that all go on like this come to an even spread, and stay there.
TEST(BetterSeat, SettlesACrowd) {
  const std::vector<int> cpus = {0, 1, 4, 6, 7};
  Seats seats(23, 4);
  for (int round = 0; round < 2; ++round)
    for (int& seat : seats)
      if (const auto better = better_seat(seats, seat, cpus)) seat = *better;
  for (const int cpu : cpus) {
    EXPECT_GE(std::count(seats.begin(), seats.end(), cpu), 4);
    EXPECT_LE(std::count(seats.begin(), seats.end(), cpu), 5);
  }
  for (const int seat : seats) EXPECT_EQ(better_seat(seats, seat, cpus), std::nullopt);
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

TEST(Seats, OfACrowdLeaveItsMembersWhereTheyMayRun) {
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
