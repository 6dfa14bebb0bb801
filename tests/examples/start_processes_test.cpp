#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "support/started_program.h"

namespace {

TEST(StartProcessesExample, RunsEachCopyWithItsArguments) {
  const auto folder = std::filesystem::temp_directory_path() / ("retinue-example-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  retinue::test::StartedProgram program("start_processes", {folder});
  std::vector<std::string> lines;
  for (std::string line = program.read_line(); !line.empty(); line = program.read_line()) lines.push_back(line);
  EXPECT_EQ(program.wait_for_all(), 0);
  ASSERT_EQ(lines.size(), 5u);
  std::sort(lines.begin(), lines.begin() + 2);  // Ranks print in any order.
  EXPECT_EQ(lines[0], "foo(bar0) red\n");
  EXPECT_EQ(lines[1], "foo(bar1) blue\n");
  EXPECT_EQ(lines[2],
            "start_processes: envs must have an entry for each of the 2 local ranks and no other: expected {0, 1}, "
            "actual {0}\n");
  std::sort(lines.begin() + 3, lines.end());
  EXPECT_EQ(lines[3], "1 2 3\n");
  EXPECT_EQ(lines[4], "[1, 2, 3]\n");
  EXPECT_TRUE(std::filesystem::exists(folder / "file1"));
  EXPECT_TRUE(std::filesystem::exists(folder / "file2"));
  EXPECT_EQ(std::filesystem::remove_all(folder), 3u);
}

}  // namespace
