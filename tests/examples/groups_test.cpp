#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "support/started_program.h"

namespace {

TEST(GroupsExample, PrintsTheSumsOfAGrid) {
  const std::string path = std::filesystem::temp_directory_path() / fmt::format("retinue-groups-example-{}", getpid());
  retinue::test::StartedProgram program("groups", {path});
  std::vector<std::string> lines;
  for (std::string line = program.read_line(); !line.empty(); line = program.read_line()) lines.push_back(line);
  EXPECT_EQ(program.wait_for_all(), 0);
  std::sort(lines.begin(), lines.end());
  // Ranks have 42 to 45; rows 85 and 89, columns 86 and 88; ranks 0, 1 and 2 sum their rows'.
  const std::vector<std::string> expected = {"rank 0: row 259, column 86\n", "rank 1: row 259, column 88\n",
                                             "rank 2: row 259, column 86\n", "rank 3: row 89, column 88\n"};
  EXPECT_EQ(lines, expected);
  EXPECT_TRUE(std::filesystem::remove(path));
}

}  // namespace
