#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "support/started_program.h"

using retinue::test::StartedProgram;

namespace {

class ProgramDeath : public testing::TestWithParam<std::string> {};

// The tests' time limit is what says that a process survived: wait_for_all() would not end.
TEST_P(ProgramDeath, ByASigkillLeavesNoProcess) {
  StartedProgram victim("victim_program", {GetParam()});
  EXPECT_EQ(victim.read_line(), "rank\n");
  EXPECT_EQ(victim.read_line(), "rank\n");
  kill(victim.pid(), SIGKILL);
  EXPECT_TRUE(WIFSIGNALED(victim.wait_for_all()));
}

TEST_P(ProgramDeath, ByASignalLeavesNoProcess) {
  StartedProgram victim("victim_program", {GetParam()});
  EXPECT_EQ(victim.read_line(), "rank\n");
  EXPECT_EQ(victim.read_line(), "rank\n");
  kill(victim.pid(), SIGINT);
  EXPECT_TRUE(WIFSIGNALED(victim.wait_for_all()));
}

/// A rank in the kernel's state D cannot be made at will: here the guardian's SIGKILL is left out.
TEST_P(ProgramDeath, IsNotNeededToEndAJobWithARankThatCannotBeKilled) {
  setenv("RETINUE_FAULT", "guardian.kill:1=skip", 1);
  StartedProgram victim("victim_program", {GetParam(), "deaf"});
  unsetenv("RETINUE_FAULT");
  const std::string text = victim.read_all();
  EXPECT_EQ(WEXITSTATUS(victim.wait_for_all()), 7);
  EXPECT_NE(text.find("raised std::runtime_error: rank 0 cannot"), std::string::npos) << text;
  EXPECT_NE(text.find("was abandoned: SIGKILL did not end it in time (state "), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(StartMethods, ProgramDeath, testing::Values("forkserver", "spawn", "fork"),
                         [](const auto& info) { return info.param; });

// Not for forked ranks: they are no children of the guardian, so their orphans don't come to it.
class GuardedRanks : public ProgramDeath {};

TEST_P(GuardedRanks, LeaveNoGrandchildOfAnotherSession) {
  StartedProgram victim("victim_program", {GetParam(), "grandchild"});
  EXPECT_EQ(victim.read_line(), "rank\n");
  EXPECT_EQ(victim.read_line(), "rank\n");
  kill(victim.pid(), SIGKILL);
  EXPECT_TRUE(WIFSIGNALED(victim.wait_for_all()));
}

INSTANTIATE_TEST_SUITE_P(StartMethods, GuardedRanks, testing::Values("forkserver", "spawn"),
                         [](const auto& info) { return info.param; });

TEST(MissingRuntime, IsAnErrorAndNoForkBomb) {
  StartedProgram victim("no_runtime_program");
  const std::string text = victim.read_all();
  EXPECT_EQ(WEXITSTATUS(victim.wait_for_all()), 7);
  EXPECT_NE(text.find("retinue::Runtime runtime(argc, argv);"), std::string::npos) << text;
  EXPECT_EQ(text.find("started"), std::string::npos) << text;
}

TEST(MissingRuntime, InAnExecutedRankIsThatRanksFailure) {
  StartedProgram victim("late_runtime_program");
  const std::string text = victim.read_all();
  EXPECT_EQ(WEXITSTATUS(victim.wait_for_all()), 7) << text;
  EXPECT_NE(text.find("must be the first line of main"), std::string::npos) << text;
}

}  // namespace
