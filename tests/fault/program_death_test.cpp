#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "os/process/kill_cgroup.h"
#include "os/process/process_calls.h"
#include "support/started_program.h"

using retinue::test::StartedProgram;

namespace {

/// Of two ranks, as soon as all of them run.
std::vector<retinue::FileDescriptor> read_grandchildren(StartedProgram& victim) {
  std::vector<retinue::FileDescriptor> found;
  for (int line = 0; line < 4; ++line) {
    int pid = 0;
    if (std::sscanf(victim.read_line().c_str(), "grandchild %d", &pid) == 1) found.push_back(retinue::open_pidfd(pid));
  }
  return found;
}

pid_t guardian_of(pid_t program) {
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", program));
  for (pid_t pid = 0; children >> pid;) {
    std::ifstream comm(fmt::format("/proc/{}/comm", pid));
    std::string name;
    if (std::getline(comm, name) && name == "retinue-guard") return pid;
  }
  return 0;
}

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
  EXPECT_EQ(read_grandchildren(victim).size(), 2u);
  kill(victim.pid(), SIGKILL);
  EXPECT_TRUE(WIFSIGNALED(victim.wait_for_all()));
}

INSTANTIATE_TEST_SUITE_P(StartMethods, GuardedRanks, testing::Values("forkserver", "spawn"),
                         [](const auto& info) { return info.param; });

/// Nobody is left then but a watcher.
class DeathOfBoth : public ProgramDeath {
 protected:
  void SetUp() override { setenv("RETINUE_WATCHER", "1", 1); }
  void TearDown() override { unsetenv("RETINUE_WATCHER"); }

  static void expect_that_nothing_is_left(const std::string& grandchild) {
    StartedProgram victim("victim_program", {GetParam(), grandchild});
    const auto grandchildren = read_grandchildren(victim);
    EXPECT_EQ(grandchildren.size(), 2u);
    const pid_t guardian = guardian_of(victim.pid());
    ASSERT_GT(guardian, 0);
    for (const int signal : {SIGSTOP, SIGKILL})
      for (const pid_t pid : {victim.pid(), guardian}) kill(pid, signal);
    for (const retinue::FileDescriptor& pidfd : grandchildren) {
      EXPECT_TRUE(retinue::wait_for_exit(pidfd.get(), std::chrono::seconds(40))) << "a grandchild lives";
      if (!retinue::wait_for_exit(pidfd.get(), std::chrono::milliseconds(0)))
        retinue::send_signal_to(pidfd.get(), SIGKILL);
    }
    EXPECT_TRUE(WIFSIGNALED(victim.wait_for_all()));
  }
};

TEST_P(DeathOfBoth, LeavesNoGrandchildOfAnotherSessionUnderAWatcher) {
  expect_that_nothing_is_left("grandchild");
}

TEST_P(DeathOfBoth, LeavesNoGrandchildWithoutAMarkWhereCgroupsMayBeMade) {
  std::string problem;
  const auto cgroup = retinue::KillCgroup::make("retinue-test-" + std::to_string(getpid()), problem);
  if (!cgroup) GTEST_SKIP() << problem;
  cgroup->kill_and_remove(std::chrono::seconds(10));
  expect_that_nothing_is_left("bare grandchild");
}

/// The watcher ends with the job, whoever ends it.
TEST_P(DeathOfBoth, AWatcherOutlivesNobody) {
  for (const bool of_guardian : {false, true}) {
    StartedProgram victim("victim_program", {GetParam(), "grandchild"});
    EXPECT_EQ(read_grandchildren(victim).size(), 2u);
    kill(of_guardian ? guardian_of(victim.pid()) : victim.pid(), SIGKILL);
    EXPECT_NE(victim.wait_for_all(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(StartMethods, DeathOfBoth, testing::Values("forkserver", "spawn", "fork"),
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
