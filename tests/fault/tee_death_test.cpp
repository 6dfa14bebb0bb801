// Who shows the output is outlived by nobody, and shows what is there before it ends.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "launch/log_files.h"
#include "support/started_program.h"

using retinue::test::contents_of;
using retinue::test::Folder;
using retinue::test::StartedProgram;
using retinue::test::wait_until;

namespace {

class TeeDeath : public testing::TestWithParam<std::string> {
 protected:
  /// Returns the pid of the process that watches the rank: the guardian, but for forked ranks.
  pid_t wait_for_rank() {
    int parent = 0;
    const std::string line = program_.read_line();
    EXPECT_EQ(std::sscanf(line.c_str(), "[rank0]:parent %d", &parent), 1) << line;
    return parent;
  }
  void expect_the_rest() {
    EXPECT_EQ(program_.read_all(), "[rank0]:half a line [no newline]\n");
    EXPECT_TRUE(WIFSIGNALED(program_.wait_for_all()));
  }

  Folder logs_;
  StartedProgram program_{"tee_program", {GetParam(), logs_.path()}};
};

// The tests' time limit is what says that a process survived: wait_for_all() would not end.
TEST_P(TeeDeath, OfTheProgramShowsTheRest) {
  wait_for_rank();
  kill(program_.pid(), SIGKILL);
  expect_the_rest();
}

TEST_P(TeeDeath, OfTheProgramByASignalShowsTheRest) {
  wait_for_rank();
  kill(program_.pid(), SIGTERM);
  expect_the_rest();
}

INSTANTIATE_TEST_SUITE_P(StartMethods, TeeDeath, testing::Values("forkserver", "spawn", "fork"),
                         [](const auto& info) { return info.param; });

class GuardedTee : public TeeDeath {};

TEST_P(GuardedTee, DeathOfProgramAndGuardianShowsTheRest) {
  const pid_t guardian = wait_for_rank();
  kill(program_.pid(), SIGSTOP);
  kill(guardian, SIGSTOP);
  kill(program_.pid(), SIGKILL);
  kill(guardian, SIGKILL);
  expect_the_rest();
}

INSTANTIATE_TEST_SUITE_P(StartMethods, GuardedTee, testing::Values("forkserver", "spawn"),
                         [](const auto& info) { return info.param; });

class FullConsole : public testing::TestWithParam<int> {};

// Nobody reads the pipe, and more than it holds is to be shown: the forwarder ends nevertheless.
TEST_P(FullConsole, OutlivesNobody) {
  const Folder logs;
  StartedProgram program("tee_program", {"forkserver", logs.path(), "100000"});
  EXPECT_TRUE(wait_until([&] { return contents_of(logs.path() + "/0/stderr.log").starts_with("parent "); }));
  kill(program.pid(), GetParam());
  EXPECT_TRUE(WIFSIGNALED(program.wait_for_all()));
  EXPECT_TRUE(contents_of(logs.path() + "/0/stdout.log").ends_with("line 99999\nhalf a line"));
}

TEST(GuardianAndFullConsole, OutliveNobody) {
  const Folder logs;
  StartedProgram program("tee_program", {"forkserver", logs.path(), "100000"});
  const std::string path = logs.path() + "/0/stderr.log";
  int guardian = 0;
  EXPECT_TRUE(wait_until([&] { return std::sscanf(contents_of(path).c_str(), "parent %d", &guardian) == 1; }));
  kill(guardian, SIGSTOP);
  kill(program.pid(), SIGKILL);
  kill(guardian, SIGKILL);
  EXPECT_TRUE(WIFSIGNALED(program.wait_for_all()));
}

INSTANTIATE_TEST_SUITE_P(Signals, FullConsole, testing::Values(SIGKILL, SIGTERM));

}  // namespace
