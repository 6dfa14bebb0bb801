#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "support/paths.h"
#include "support/started_program.h"

namespace {

/// As by hand in three terminals.
TEST(JoinWorldExample, RanksThatNobodyConnectedFindEachOther) {
  const std::string path =
      std::filesystem::temp_directory_path() / fmt::format("retinue-join-world-example-{}", getpid());
  const std::string start = fmt::format("{}/join_world --init-method file://{} --world-size 3", RETINUE_BIN_DIR, path);
  retinue::test::StartedProgram shell("/bin/sh",
                                      {"-c", fmt::format("for rank in 2 0 1; do {} --rank $rank & done; wait", start)});
  const std::string output = shell.read_all();
  EXPECT_EQ(shell.wait_for_all(), 0) << output;
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_NE(output.find(fmt::format("rank {} of 3: the sum of all ranks is 3\n", rank)), std::string::npos) << output;
}

TEST(JoinWorldExample, AloneItIsAWorldOfOne) {
  retinue::test::StartedProgram program("join_world");
  EXPECT_EQ(program.read_all(), "rank 0 of 1: the sum of all ranks is 0\n");
  EXPECT_EQ(program.wait_for_all(), 0);
}

}  // namespace
