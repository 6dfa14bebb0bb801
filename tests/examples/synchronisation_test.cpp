#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/started_program.h"

namespace {

TEST(SynchronisationExample, PrintsWhatTheGuideSays) {
  retinue::test::StartedProgram program("synchronisation");
  std::vector<std::string> lines;
  for (std::string line = program.read_line(); !line.empty(); line = program.read_line()) lines.push_back(line);
  EXPECT_EQ(program.wait_for_all(), 0);
  const std::vector<std::string> expected = {"4000 steps, sum 1998000\n", "total 6\n",
                                             "paid in 10, balance 10\n",  "stock 3, enough\n",
                                             "sum of squares 14\n",       "all had a device\n"};
  EXPECT_EQ(lines, expected);
}

}  // namespace
