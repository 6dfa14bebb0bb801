#include "collective/board/stage_ring.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace retinue::test {
namespace {

struct Staged {
  std::uint64_t sequence;
  std::size_t begin;
  std::size_t end;
};

/// Calls of any sizes, whose readers are up to kLines - 1 calls behind: nothing is written over that may be read.
TEST(StageRing, KeepsWhatMayStillBeRead) {
  std::mt19937 random(7);
  for (const std::size_t most : {std::size_t{64}, std::size_t{5000}, std::size_t{20000}, kStageBytes}) {
    StageRing ring;
    std::deque<Staged> unread;
    std::uint64_t agreed = 0;
    for (std::uint64_t sequence = 1; sequence < 5000; ++sequence) {
      if (sequence > kLines) agreed = std::max(agreed, sequence - kLines + 1);
      agreed = std::max(agreed, sequence - 1 - random() % std::min<std::uint64_t>(sequence, kLines - 1));
      ring.begin_call(sequence);
      if (random() % 4 == 0) continue;
      const std::size_t bytes = std::max<std::size_t>(1, random() % 3 == 0 ? most : random() % most);
      const std::uint64_t needed = ring.call_before(sequence, agreed, bytes);
      ASSERT_LT(needed, sequence);
      agreed = std::max(agreed, needed);
      while (!unread.empty() && unread.front().sequence < agreed) unread.pop_front();
      const std::size_t begin = ring.take(bytes);
      ASSERT_EQ(begin, ring.place());
      ASSERT_EQ(begin % kStagingLine, 0u);
      ASSERT_LE(begin + bytes, kStagingBytes);
      for (const Staged& other : unread)
        ASSERT_TRUE(begin + bytes <= other.begin || other.end <= begin) << sequence << " over " << other.sequence;
      unread.push_back({.sequence = sequence, .begin = begin, .end = begin + bytes});
    }
  }
}

TEST(StageRing, GoesRoundAllOfItWithLittleData) {
  StageRing ring;
  for (std::uint64_t sequence = 1; sequence <= kStagingBytes / kStagingLine; ++sequence) {
    ring.begin_call(sequence);
    EXPECT_EQ(ring.call_before(sequence, sequence - 1, 10), 0u);
    EXPECT_EQ(ring.take(10), (sequence - 1) * kStagingLine);
  }
  ring.begin_call(kStagingBytes / kStagingLine + 1);
  EXPECT_EQ(ring.take(10), 0u);
}

TEST(StageRing, SaysForWhatItWaits) {
  StageRing ring;
  for (std::uint64_t sequence = 1; sequence <= 4; ++sequence) {
    ring.begin_call(sequence);
    EXPECT_EQ(ring.call_before(sequence, 0, kStageBytes), 0u);
    ring.take(kStageBytes);
  }
  ring.begin_call(5);
  EXPECT_EQ(ring.call_before(5, 0, kStageBytes), 2u);  // All have published 2, and so are done with 1.
  EXPECT_EQ(ring.call_before(5, 1, kStageBytes), 2u);
  EXPECT_EQ(ring.call_before(5, 2, kStageBytes), 0u);
}

}  // namespace
}  // namespace retinue::test
