// Ranks that are killed at random moments: the training continues at its newest checkpoint, and ends with the bits of
// an undisturbed one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>

#include "cli/shell_run.h"
#include "launch/log_files.h"
#include "support/paths.h"

namespace {

namespace fs = std::filesystem;
using retinue::test::contains;
using retinue::test::Folder;
using retinue::test::shell_run;

constexpr int kKills = 4;
constexpr int kLastStep = 38;  // Of 40.
constexpr const char* kProgram = RETINUE_BIN_DIR "/checkpointed_training_program";

std::string line_of_bits(const std::string& output) {
  const std::size_t begin = output.find("bits ");
  return begin == std::string::npos ? "none in: " + output : output.substr(begin, output.find('\n', begin) - begin);
}

/// For each life a rank, a step that the life comes to, and a moment in it or in the next ones.
std::string random_kills(std::mt19937& random) {
  std::string kills;
  for (int i = 0; i < kKills; ++i) {
    // A life continues at most three steps before the one in which the last one ended.
    const int step = kLastStep * (i + 1) / kKills - static_cast<int>(random() % 4);
    kills += fmt::format(" {}:{}:{}", random() % 2, step, random() % 3000);
  }
  return kills;
}

class CheckpointRestart : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Optimizers, CheckpointRestart, testing::Values("SGD", "AdamW"));

TEST_P(CheckpointRestart, EndsWithTheBitsOfAnUndisturbedRun) {
  if (!fs::exists(kProgram)) GTEST_SKIP() << "this build is without LibTorch";
  const auto train = [&](const std::string& folder, const std::string& flags, const std::string& kills) {
    return shell_run(fmt::format("$RETINUE run -n 2 {} {} {} {} {}", flags, kProgram, folder, GetParam(), kills));
  };
  const Folder folder;
  const auto undisturbed = train(folder.path() + "/undisturbed", "", "");
  ASSERT_EQ(undisturbed.status, 0) << undisturbed.output;
  ASSERT_TRUE(contains(undisturbed.output, "after step 40\n")) << undisturbed.output;
  std::mt19937 random{std::random_device{}()};  // A failure names the kills.
  for (int round = 0; round < 3; ++round) {
    const std::string kills = random_kills(random);
    const auto disturbed = train(folder.path() + fmt::format("/{}", round), "--max-restarts 4", kills);
    SCOPED_TRACE("kills" + kills + "\n" + disturbed.output);
    EXPECT_EQ(disturbed.status, 0);
    EXPECT_TRUE(contains(disturbed.output, "restart 4 of 4"));
    EXPECT_EQ(line_of_bits(disturbed.output), line_of_bits(undisturbed.output));
  }
}

}  // namespace
