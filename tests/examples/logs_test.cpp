#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/started_program.h"

namespace {

namespace fs = std::filesystem;

std::string content(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(LogsExample, PrintsWhatTheGuideSays) {
  const fs::path folder = fs::temp_directory_path() / ("retinue-logs-example-" + std::to_string(getpid()));
  retinue::test::StartedProgram program("logs", {folder});
  EXPECT_EQ(program.read_all(),
            "[trainer0]:step 0: loss 1\n"
            "[trainer0]:step 1: loss 0.5\n"
            "[trainer0]:step 2: loss 0.25\n"
            "rank 1: std::out_of_range: rank 1 is beyond 0\n"
            "its standard error: checking rank 1\n");
  EXPECT_EQ(program.wait_for_all(), 0);
  EXPECT_EQ(content(folder / "trained/1/stdout.log"), "read batch 0\nstep 0: loss 1\nread batch 1\nstep 1: loss 0.5\n");
  EXPECT_EQ(content(folder / "trained/0/stderr.log"), "rank 0 is done\n");
  EXPECT_FALSE(fs::exists(folder / "trained/0/error.json"));
  EXPECT_NE(content(folder / "checked/1/error.json").find("std::out_of_range: rank 1 is beyond 0"), std::string::npos);
  fs::remove_all(folder);
}

}  // namespace
