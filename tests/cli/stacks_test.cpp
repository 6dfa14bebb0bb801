#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <string>

#include "cli/watched_job.h"
#include "support/started_program.h"

using retinue::test::contains;
using retinue::test::listed_job;
using retinue::test::ranks_come_to;
using retinue::test::shell_run;
using retinue::test::StartedProgram;

namespace {

/// A program whose ranks wait in wait_for_a_look().
class Stacks : public testing::Test {
 protected:
  Stacks() : program_("waiting_program"), pid_(std::to_string(program_.pid())), name_("waiting_program-" + pid_) {
    for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(program_.read_line(), "ready\n");
  }
  ~Stacks() override {
    kill(program_.pid(), SIGKILL);
    program_.wait_for_all();
  }
  /// Skipped where nobody may look at another process.
  static bool is_forbidden(const std::string& output) { return contains(output, "is forbidden"); }

  StartedProgram program_;
  std::string pid_;
  std::string name_;
};

TEST_F(Stacks, ShowWhereEachRankWaits) {
  const auto shown = shell_run("$RETINUE stacks " + pid_);
  if (is_forbidden(shown.output)) GTEST_SKIP() << shown.output;
  EXPECT_EQ(shown.status, 0);
  const std::string waits = "wait_for_a_look() at waiting_program.cpp:";
  const std::size_t first = shown.output.find("rank 0 of context 1 (pid ");
  const std::size_t second = shown.output.find("rank 1 of context 1 (pid ");
  ASSERT_TRUE(first < second && second != std::string::npos) << shown.output;
  EXPECT_LT(shown.output.find(waits, first), second) << shown.output;
  EXPECT_NE(shown.output.find(waits, second), std::string::npos) << shown.output;
  EXPECT_FALSE(contains(shown.output, "entry_thunk")) << shown.output;  // Retinue's own is left out.
  EXPECT_TRUE(ranks_come_to(name_, {"running", "running"}));
}

TEST_F(Stacks, OfOneRank) {
  const auto shown = shell_run("$RETINUE stacks --rank 1 " + pid_);
  if (is_forbidden(shown.output)) GTEST_SKIP() << shown.output;
  EXPECT_FALSE(contains(shown.output, "rank 0 of")) << shown.output;
  EXPECT_TRUE(contains(shown.output, "rank 1 of context 1")) << shown.output;
  const auto absent = shell_run("$RETINUE stacks --rank 7 " + pid_);
  EXPECT_EQ(WEXITSTATUS(absent.status), 1);
  EXPECT_TRUE(contains(absent.output, "no such running rank; its ranks are:\n  rank 0 of context 1")) << absent.output;
}

TEST_F(Stacks, OfAStoppedRankLeaveItStopped) {
  const auto ranks = listed_job(name_)["ranks"];
  kill(ranks[0]["pid"].get<pid_t>(), SIGSTOP);
  ASSERT_TRUE(ranks_come_to(name_, {"stopped", "running"}));
  const auto shown = shell_run("$RETINUE stacks --rank 0 " + pid_);
  if (is_forbidden(shown.output)) GTEST_SKIP() << shown.output;
  EXPECT_TRUE(contains(shown.output, ", stopped)")) << shown.output;
  EXPECT_TRUE(contains(shown.output, "wait_for_a_look()")) << shown.output;
  EXPECT_TRUE(ranks_come_to(name_, {"stopped", "running"}));
  kill(ranks[0]["pid"].get<pid_t>(), SIGCONT);
  EXPECT_TRUE(ranks_come_to(name_, {"running", "running"}));
}

TEST_F(Stacks, ReaderThatDiesWhileItHoldsARankLetsItGo) {
  const auto shown = shell_run("RETINUE_FAULT=stacks.held=kill $RETINUE stacks " + pid_);
  if (is_forbidden(shown.output)) GTEST_SKIP() << shown.output;
  EXPECT_TRUE(contains(shown.output, "the reader ended (SIGKILL)")) << shown.output;
  EXPECT_TRUE(contains(shown.output, "rank 1 of context 1")) << shown.output;  // And it goes on with the next.
  EXPECT_TRUE(ranks_come_to(name_, {"running", "running"}));
  EXPECT_TRUE(contains(shell_run("$RETINUE stacks " + pid_).output, "wait_for_a_look()"));
}

TEST_F(Stacks, SayWhoHoldsTheRank) {
  const std::string rank = std::to_string(listed_job(name_)["ranks"][0]["pid"].get<pid_t>());
  if (shell_run("which gdb").status != 0) GTEST_SKIP() << "there is no gdb";
  const auto shown =
      shell_run("gdb -nx -batch -p " + rank + " -ex 'shell $RETINUE stacks --rank 0 " + pid_ + "' </dev/null");
  if (contains(shown.output, "ptrace: Operation not permitted")) GTEST_SKIP() << shown.output;
  EXPECT_TRUE(contains(shown.output, "rank 0 of context 1 (pid " + rank + ", traced)")) << shown.output;
  EXPECT_TRUE(contains(shown.output, "a debugger (pid ")) << shown.output;
}

}  // namespace
