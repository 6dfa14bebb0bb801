#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "cli/shell_run.h"
#include "support/paths.h"

using retinue::test::contains;
using retinue::test::shell_run;

namespace {

/// A Python that has PyTorch with its distributed package; $PYTHON_EXEC in commands.
class PythonDdp : public testing::Test {
 protected:
  void SetUp() override {
    const char* given = std::getenv("RETINUE_PEER_PYTHON");
    std::string python = given != nullptr ? given : RETINUE_TORCH_PYTHON;
    if (python.empty()) python = "python3";
    setenv("PYTHON_EXEC", python.c_str(), 1);
    setenv("SCRIPT", RETINUE_SOURCE_DIR "/tests/cli/ddp_over_gloo.py", 1);
    if (shell_run("\"$PYTHON_EXEC\" -c 'import torch.distributed as d; assert d.is_gloo_available()'").status != 0)
      GTEST_SKIP() << python << " has no PyTorch with gloo: set RETINUE_PEER_PYTHON to one that has";
  }
};

TEST_F(PythonDdp, TrainsOverGlooUnderRetinueRun) {
  const auto result = shell_run("$RETINUE run -n 2 $SCRIPT");
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_TRUE(contains(result.output, "rank 0 of 2: equal=True falls=True life=0\n")) << result.output;
  EXPECT_TRUE(contains(result.output, "rank 1 of 2: equal=True falls=True life=0\n")) << result.output;
}

TEST_F(PythonDdp, TrainsInItsSecondLifeAfterAFailureInTheFirst) {
  const auto result = shell_run("$RETINUE run -n 2 --max-restarts 1 $SCRIPT fail-first");
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_TRUE(contains(result.output, "fails in its first life")) << result.output;
  EXPECT_TRUE(contains(result.output, "rank 0 of 2: equal=True falls=True life=1\n")) << result.output;
  EXPECT_TRUE(contains(result.output, "rank 1 of 2: equal=True falls=True life=1\n")) << result.output;
  EXPECT_FALSE(contains(result.output, "life=0")) << result.output;
}

/// Which rank ends first is not said: gloo lets rank 0 abort as soon as rank 1's interpreter has closed its sockets.
TEST_F(PythonDdp, FailsWhenARankFails) {
  const auto result = shell_run("$RETINUE run -n 2 $SCRIPT fail-first");
  EXPECT_TRUE(WIFEXITED(result.status) && WEXITSTATUS(result.status) != 0) << result.output;
  EXPECT_TRUE(contains(result.output, "RuntimeError: fails in its first life")) << result.output;
  EXPECT_TRUE(contains(result.output, "retinue run: rank ")) << result.output;
}

}  // namespace
