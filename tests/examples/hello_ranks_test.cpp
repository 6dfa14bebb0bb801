#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/started_program.h"

namespace {

TEST(HelloRanksExample, PrintsWhatTheReadmeSays) {
  retinue::test::StartedProgram program("hello_ranks");
  std::vector<std::string> lines;
  for (std::string line = program.read_line(); !line.empty(); line = program.read_line()) lines.push_back(line);
  EXPECT_EQ(program.wait_for_all(), 0);
  ASSERT_EQ(lines.size(), 4u);
  std::sort(lines.begin(), lines.end());  // Ranks print in any order.
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(lines[static_cast<std::size_t>(rank)], "rank " + std::to_string(rank) + " of 4: the sum is 46\n");
}

}  // namespace
