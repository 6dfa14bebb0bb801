#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "cli/shell_run.h"
#include "launch/log_files.h"
#include "support/paths.h"
#include "support/says.h"
#include "support/started_program.h"

namespace {

using retinue::test::Folder;
using retinue::test::says;
using retinue::test::shell_run;
using retinue::test::StartedProgram;

/// A text that is easily learned; for two ranks, the first has three times as many batches.
void write_texts(const std::string& folder) {
  for (const int file : {0, 1}) {
    std::ofstream text(fmt::format("{}/{}.txt", folder, file));
    for (int line = 0; line < (file == 0 ? 900 : 300); ++line) text << "the ranks of a group have the same sums. ";
  }
}

TEST(CharacterModelExample, LearnsTextOfWhichRanksHaveDifferentAmounts) {
  const Folder folder;
  write_texts(folder.path());
  StartedProgram program("character_model", {"--text", folder.path(), "--epochs", "2", "--max-bits", "1"});
  const std::string output = program.read_all();
  EXPECT_EQ(program.wait_for_all(), 0) << output;
  EXPECT_TRUE(says(output, "epoch 2/2  0.")) << output;
  EXPECT_TRUE(says(output, "character_model: ok bits=0.")) << output;
}

TEST(CharacterModelExample, SaysWhichRankHasNoText) {
  const Folder folder;
  write_texts(folder.path());
  const auto run = shell_run(RETINUE_BIN_DIR "/character_model --nprocs 3 --text " + folder.path());
  EXPECT_NE(run.status, 0);
  EXPECT_TRUE(says(run.output, "has no file for rank 2 of 3")) << run.output;
}

}  // namespace
