// Ranks that fail when nobody asks any more how they ended.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <string>

#include "cli/shell_run.h"
#include "support/paths.h"
#include "support/says.h"

using retinue::test::count_of;
using retinue::test::shell_run;
using Result = retinue::test::ShellResult;

namespace {

constexpr const char* kReport =
    "retinue: ranks failed (started as \"rank\"), and no call of join(), wait() or status() retrieved the failure";

Result run(const std::string& what, const std::string& launcher = "") {
  return shell_run(launcher + RETINUE_BIN_DIR "/unretrieved_program '" + what + "'");
}

TEST(UnretrievedFailure, IsToldAndFailsTheProgram) {
  for (const char* what : {"dropped before", "dropped after", "kept", "leaked", "left running", "exit"}) {
    const Result result = run(what);
    EXPECT_EQ(WEXITSTATUS(result.status), 1) << what << ": " << result.output;
    EXPECT_EQ(count_of(result.output, kReport), 1) << what << ": " << result.output;
    EXPECT_EQ(count_of(result.output, "raised std::runtime_error: the failure of the test"), 1) << result.output;
    EXPECT_EQ(count_of(result.output, " at unretrieved_program.cpp:"), 1) << what << ": " << result.output;
  }
}

TEST(UnretrievedFailure, LeavesTheProgramsOwnCode) {
  const Result result = run("own code");
  EXPECT_EQ(WEXITSTATUS(result.status), 7) << result.output;
  EXPECT_EQ(count_of(result.output, kReport), 1) << result.output;
}

/// And the program itself, which a shell may ask.
TEST(UnretrievedFailure, FailsARunOfTheCommand) {
  for (const char* what : {"dropped before", "dropped after", "kept", "leaked", "left running", "exit"}) {
    const Result result = shell_run(std::string("$RETINUE run -n 1 sh -c '" RETINUE_BIN_DIR "/unretrieved_program \"") +
                                    what + "\"; code=$?; echo inner $code; exit $code'");
    EXPECT_NE(WEXITSTATUS(result.status), 0) << what << ": " << result.output;
    EXPECT_EQ(count_of(result.output, kReport), 1) << what << ": " << result.output;
    EXPECT_EQ(count_of(result.output, "inner 1\n"), 1) << what << ": " << result.output;
  }
}

/// Nothing of the program runs then, but the job's guardian knows.
TEST(UnretrievedFailure, IsToldWhereTheProgramEndsAtOnce) {
  EXPECT_EQ(count_of(run("_exit").output, kReport), 1);
  const Result result = run("_exit", "$RETINUE run -n 1 ");
  EXPECT_EQ(WEXITSTATUS(result.status), 1) << result.output;
  EXPECT_EQ(count_of(result.output, kReport), 1) << result.output;
}

TEST(UnretrievedFailure, IsNoneWhereSomebodyAsked) {
  for (const char* what : {"asked", "waited", "pool", "process"}) {
    const Result result = run(what);
    EXPECT_EQ(result.status, 0) << what << ": " << result.output;
    EXPECT_EQ(count_of(result.output, "retrieved the failure"), 0) << what << ": " << result.output;
  }
  EXPECT_EQ(count_of(run("process").output, "the failure of the test"), 1);
}

}  // namespace
