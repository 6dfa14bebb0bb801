// The line of docs/guide/retinue_run.md. Job memory has its default size: memcheck must not read all of it.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <string>

#include "cli/shell_run.h"
#include "support/paths.h"
#include "support/says.h"

using retinue::test::contains;
using retinue::test::count_of;
using retinue::test::shell_run;
using Result = retinue::test::ShellResult;

namespace {

const std::string kMemcheckProgram = RETINUE_BIN_DIR "/memcheck_program";

class Valgrind : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "valgrind runs no program that is built for a sanitizer";
#endif
    if (shell_run("valgrind -q true").status != 0) GTEST_SKIP() << "valgrind is missing, or can't run here";
    const Result result = shell_run("valgrind -q " + kMemcheckProgram);
    if (contains(result.output, "debuginfo reader"))
      GTEST_SKIP() << "this valgrind can't read what this compiler writes";
  }
};

TEST_F(Valgrind, FindsNothingInRanks) {
  const Result result = shell_run("$RETINUE run -n 2 --wrap 'valgrind -q --error-exitcode=9' " + kMemcheckProgram);
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.output, "rank 1 is here\ncounted 600, sum 3\n");
}

TEST_F(Valgrind, FindsWhatRanksLose) {
  const Result result = shell_run("$RETINUE run -n 2 --wrap 'valgrind -q --leak-check=full --error-exitcode=9' " +
                                  kMemcheckProgram + " lose");
  EXPECT_EQ(WEXITSTATUS(result.status), 9) << result.output;
  EXPECT_TRUE(contains(result.output, "1,234 bytes in 1 blocks are definitely lost")) << result.output;
  EXPECT_TRUE(contains(result.output, "lose_a_block")) << result.output;
}

TEST_F(Valgrind, SaysHowProgramsStartWhereItLacksACall) {
  const Result result = shell_run("valgrind -q " + kMemcheckProgram);
  if (result.status == 0) GTEST_SKIP() << "this valgrind knows pidfd_open";
  EXPECT_TRUE(contains(result.output, "retinue run --wrap 'valgrind -q' PROGRAM")) << result.output;
}

}  // namespace
