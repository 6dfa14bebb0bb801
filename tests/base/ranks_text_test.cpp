#include "base/ranks_text.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace retinue {
namespace {

TEST(RanksText, SaysThemAsPeopleDo) {
  EXPECT_EQ(ranks_text({3}), "rank 3");
  EXPECT_EQ(ranks_text({0, 2}), "ranks 0 and 2");
  EXPECT_EQ(ranks_text({0, 1, 5}), "ranks 0, 1 and 5");
}

TEST(RanksText, NamesManyByRanges) {
  EXPECT_EQ(ranks_text({4, 5}, 2), "ranks 4 and 5");
  EXPECT_EQ(ranks_text({9, 4, 5}, 2), "ranks 4, 5, 9");
  std::vector<int> all(65'536);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(ranks_text(all), "ranks 0-65535");
  all.erase(all.begin() + 7);
  EXPECT_EQ(ranks_by_ranges(all), "ranks 0-6, 8-65535");
  EXPECT_EQ(ranks_behind(all, 65'534), "rank 65535");
  EXPECT_EQ(ranks_by_ranges({3}), "rank 3");
  EXPECT_EQ(ranges_text({0, 1, 3, 4, 5}), "0, 1, 3-5");
}

}  // namespace
}  // namespace retinue
