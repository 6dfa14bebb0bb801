#include "stragglers.h"

#include <gtest/gtest.h>

namespace retinue {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

RecordedCall call(std::uint64_t sequence, std::uint64_t started_ns) {
  return {.started_ns = started_ns, .sequence = sequence};
}

TEST(Stragglers, IsForWhomTheOthersWaitedLongest) {
  Stragglers stragglers;
  const RecordedGroup group{.name = "world", .rank = 0, .size = 3};
  EXPECT_FALSE(stragglers.worst(kSecond));
  // Rank 2 is last twice, by little; rank 0 once, by much.
  const std::uint64_t begun[3][3] = {{10, 20, 30}, {40, 50, 60}, {1000, 100, 200}};
  for (std::uint64_t sequence = 0; sequence < 3; ++sequence)
    for (int rank = 2; rank >= 0; --rank)
      stragglers.add({1, rank}, group, call(sequence, kSecond + begun[sequence][rank]));
  const auto worst = stragglers.worst(2 * kSecond);
  ASSERT_TRUE(worst);
  EXPECT_EQ(worst->rank, (RankName{1, 0}));
  EXPECT_EQ(worst->last, 1u);
  EXPECT_EQ(worst->seen, 3u);
  EXPECT_EQ(worst->waited.count(), 900 + 800);
}

TEST(Stragglers, NeedAllMembersCalls) {
  Stragglers stragglers;
  const RecordedGroup group{.name = "world", .rank = 0, .size = 2};
  stragglers.add({1, 0}, group, call(1, 10));
  stragglers.add({1, 1}, group, call(2, 20));
  stragglers.add({1, 0}, {.name = "other", .rank = 0, .size = 2}, call(2, 10));
  stragglers.add({1, 0}, {.name = "alone", .rank = 0, .size = 1}, call(2, 10));
  EXPECT_FALSE(stragglers.worst(kSecond));
  stragglers.add({1, 0}, group, call(2, 10));
  EXPECT_EQ(stragglers.worst(kSecond)->seen, 1u);
}

TEST(Stragglers, AreForgottenAfterAMinute) {
  Stragglers stragglers;
  const RecordedGroup group{.name = "world", .rank = 0, .size = 2};
  for (int rank = 0; rank < 2; ++rank) stragglers.add({1, rank}, group, call(1, 100 * kSecond + 5));
  EXPECT_TRUE(stragglers.worst(159 * kSecond));
  EXPECT_FALSE(stragglers.worst(161 * kSecond));
}

TEST(Stragglers, BeginAnewWithAGroupOfTheSameName) {
  Stragglers stragglers;
  const RecordedGroup group{.name = "world", .rank = 0, .size = 2};
  stragglers.add({1, 0}, group, call(1, 10));
  stragglers.add({1, 0}, group, call(1, 500));  // The other one of the first group was never seen.
  stragglers.add({1, 1}, group, call(1, 600));
  EXPECT_EQ(stragglers.worst(kSecond)->waited.count(), 100);
}

TEST(Stragglers, TakeAnyNumberOfCallsThatNobodyElseMakes) {
  Stragglers stragglers;
  const RecordedGroup group{.name = "world", .rank = 0, .size = 2};
  for (std::uint64_t sequence = 0; sequence < 20'000; ++sequence) stragglers.add({1, 0}, group, call(sequence, 10));
  stragglers.add({1, 1}, group, call(19'999, 10));
  stragglers.add({1, 1}, group, call(0, 10));
  EXPECT_EQ(stragglers.worst(kSecond)->seen, 1u);
}

}  // namespace
}  // namespace retinue
