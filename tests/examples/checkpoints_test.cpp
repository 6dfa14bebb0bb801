#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "cli/shell_run.h"
#include "launch/log_files.h"
#include "support/paths.h"
#include "support/says.h"

namespace {

using retinue::test::Folder;
using retinue::test::says;
using retinue::test::shell_run;

std::string last_line(const std::string& output) {
  return output.substr(output.rfind('\n', output.size() - 2) + 1);
}

TEST(CheckpointsExample, ContinuesAsIfItHadNotStopped) {
  const Folder folder;
  const auto train = [&](const char* name, int epochs) {
    return shell_run(fmt::format(RETINUE_BIN_DIR "/checkpoints {}/{} {}", folder.path(), name, epochs));
  };
  const auto begin = train("stopped", 3);
  EXPECT_EQ(begin.status, 0) << begin.output;
  EXPECT_TRUE(says(begin.output, "begins after step 0\nstep 75, loss ")) << begin.output;
  const auto rest = train("stopped", 8);
  EXPECT_TRUE(says(rest.output, "begins after step 70\nstep 200, loss ")) << rest.output;
  const auto whole = train("whole", 8);
  EXPECT_EQ(last_line(rest.output), last_line(whole.output));
}

TEST(CheckpointsExample, RunsUnderTheCommandAndInPython) {
  const Folder folder;
  const auto run =
      shell_run("$RETINUE run -n 3 --max-restarts 2 " RETINUE_BIN_DIR "/checkpoints " + folder.path() + "/made 40");
  EXPECT_EQ(run.status, 0) << run.output;
  const std::string python = RETINUE_TORCH_PYTHON;
  if (python.empty()) GTEST_SKIP() << "this LibTorch has no Python";
  const auto loaded =
      shell_run(python + " -W 'ignore:Failed to initialize NumPy' " RETINUE_SOURCE_DIR "/examples/load_checkpoint.py " +
                folder.path() + "/made");
  EXPECT_EQ(loaded.output, "step 680 with error below 0.1: True\n");
}

}  // namespace
