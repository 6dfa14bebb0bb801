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

TEST(RanksText, CountsThoseThatItDoesNotName) {
  EXPECT_EQ(ranks_text({4, 5}, 2), "ranks 4 and 5");
  EXPECT_EQ(ranks_text({4, 5, 9}, 2), "ranks 4, 5 and 1 more");
  std::vector<int> all(65'536);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(ranks_text(all), "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 65520 more");
}

}  // namespace
}  // namespace retinue
