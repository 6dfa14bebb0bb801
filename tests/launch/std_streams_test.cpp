#include "retinue/launch/std_streams.h"

#include <gtest/gtest.h>

#include "retinue/base/error.h"

using retinue::Std;
using retinue::StdByRank;

namespace {

TEST(StdByRank, OneMaskIsForAllRanks) {
  const StdByRank streams = StdByRank::parse("3");
  EXPECT_EQ(streams.of(0), Std::kAll);
  EXPECT_EQ(streams.of(1000), Std::kAll);
  EXPECT_FALSE(StdByRank::parse("0").any(4));
}

TEST(StdByRank, RanksOfAnyNumberOfDigits) {
  const StdByRank streams = StdByRank::parse("0:1,12:3,123:2");
  EXPECT_EQ(streams.of(0), Std::kOut);
  EXPECT_EQ(streams.of(12), Std::kAll);
  EXPECT_EQ(streams.of(123), Std::kErr);
  EXPECT_EQ(streams.of(1), Std::kNone);
  EXPECT_EQ(streams.largest_rank(), 123);
  EXPECT_TRUE(streams.any(1));
}

TEST(StdByRank, RefusesWhatIsNoMask) {
  for (const char* text : {"", "4", "-1", "x", "0:4", "0:1,", "0:1,0:2", "0:1,3", ":1", "1:", "0:1;2:3", "99999999999"})
    EXPECT_THROW(StdByRank::parse(text), retinue::UsageError) << text;
}

}  // namespace
