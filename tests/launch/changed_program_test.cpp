// Programs that are started in an odd way, or change behind their Runtime, and then start ranks.
#include <gtest/gtest.h>

#include <string>

#include "cli/shell_run.h"
#include "support/paths.h"
#include "support/says.h"
#include "support/started_program.h"

using retinue::test::contains;
using retinue::test::count_of;
using retinue::test::shell_run;
using retinue::test::StartedProgram;

namespace {

const std::string kProgram = RETINUE_BIN_DIR "/changed_program";

class ChangedProgram : public testing::TestWithParam<std::string> {};

std::string output_of(const std::string& how, const std::string& method) {
  StartedProgram program("changed_program", {how, method});
  std::string output = program.read_all();
  EXPECT_EQ(program.wait_for_all(), 0) << output;
  return output;
}

TEST_P(ChangedProgram, MayBeRunByTheLoader) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's memory may lie where the loader puts a program that it runs";
#endif
  const auto result = shell_run(
      "for loader in /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1; do test -x $loader && exec $loader " +
      kProgram + " unchanged " + GetParam() + "; done; echo no loader");
  if (contains(result.output, "no loader")) GTEST_SKIP() << "this machine's loader has another path";
  EXPECT_EQ(result.status, 0) << result.output;
  for (const char* line : {"rank 0 of 2\n", "rank 1 of 2\n"}) EXPECT_EQ(count_of(result.output, line), 1);
}

TEST_P(ChangedProgram, IsToldThatItHasClosedDescriptors) {
  for (const char* how : {"closed", "closed later", "closed beside ranks"}) {
    const std::string output = output_of(how, GetParam());
    EXPECT_TRUE(output.starts_with("UsageError: this process has closed the descriptor")) << how << ": " << output;
    EXPECT_TRUE(contains(output, "close descriptors before the Runtime is made")) << how << ": " << output;
  }
}

TEST_P(ChangedProgram, IsToldThatADaemonIsAFork) {
  const std::string output = output_of("daemon", GetParam());
  EXPECT_TRUE(contains(output, "UsageError: starting ranks: this process was forked")) << output;
  EXPECT_TRUE(contains(output, "make the Runtime after the fork")) << output;
}

TEST_P(ChangedProgram, IsToldToJoin) {
  const std::string output = output_of("unjoined", GetParam());
  EXPECT_TRUE(contains(output, "512 starts of this job")) << output;
  EXPECT_TRUE(contains(output, "join() those that have ended, or destroy the objects that they returned")) << output;
}

INSTANTIATE_TEST_SUITE_P(StartMethods, ChangedProgram, testing::Values("forkserver", "spawn", "fork"),
                         [](const auto& info) { return info.param; });

}  // namespace
