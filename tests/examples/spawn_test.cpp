#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/started_program.h"

namespace {

TEST(SpawnExample, PrintsWhatTheGuideSays) {
  retinue::test::StartedProgram program("spawn", {"no-such-folder"});
  std::vector<std::string> lines;
  for (std::string line = program.read_line(); !line.empty(); line = program.read_line()) lines.push_back(line);
  EXPECT_EQ(program.wait_for_all(), 0);
  ASSERT_EQ(lines.size(), 13u);
  EXPECT_EQ(lines[0], "pi is about 3.1416\n");
  // Both ranks fail; the first one is told.
  EXPECT_TRUE(lines[1] == "rank 0 failed: std::runtime_error: no-such-folder/shard-0 is missing\n" ||
              lines[1] == "rank 1 failed: std::runtime_error: no-such-folder/shard-1 is missing\n")
      << lines[1];
  EXPECT_EQ(lines[2], "rank 0 is running\n");
  EXPECT_EQ(lines[3], "rank 1 is running\n");
  EXPECT_EQ(lines[4], "rank 0 was stopped\n");
  EXPECT_EQ(lines[5], "rank 1 was stopped\n");
  EXPECT_EQ(lines[6], "rank 1 found 7 at 3\n");
  EXPECT_EQ(lines[7], "the sum is 500000\n");
  EXPECT_EQ(lines[8], "set before main\n");
  EXPECT_EQ(lines[9], "set before main\n");
  EXPECT_EQ(lines[10], "set by main\n");
  std::sort(lines.begin() + 11, lines.end());  // Ranks print in any order.
  EXPECT_EQ(lines[11], "rank 0: writer, /, 1 thread(s)\n");
  EXPECT_EQ(lines[12], "rank 1: no role, /, 1 thread(s)\n");
}

}  // namespace
