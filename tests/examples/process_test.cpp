#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/started_program.h"

namespace {

TEST(ProcessExample, PrintsWhatTheGuideSays) {
  retinue::test::StartedProgram program("process");
  std::vector<std::string> lines;
  for (std::string line = program.read_line(); !line.empty(); line = program.read_line())
    if (line.find("is at work") == std::string::npos) lines.push_back(line);  // As often as its failure takes.
  EXPECT_EQ(program.wait_for_all(), 0);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0], "report.txt with 3 pages\n");
  EXPECT_EQ(lines[1], "Process-1: exit code 0\n");
  EXPECT_EQ(lines[2], "writer: exit code 1\n");
  EXPECT_EQ(lines[3], "process 1 was first\n");
  EXPECT_EQ(lines[4], "process 0: exit code -15\n");
}

}  // namespace
