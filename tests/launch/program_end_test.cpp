// What becomes of running ranks at the program's end. Graces here are an hour: who waits for one exceeds the test's
// time.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <string>

#include "support/started_program.h"

namespace {

using retinue::test::StartedProgram;

/// Reads until each of `names` has said its pid.
std::map<std::string, pid_t> pids_of(StartedProgram& program, std::size_t names) {
  std::map<std::string, pid_t> pids;
  while (pids.size() < names) {
    const std::string line = program.read_line();
    if (line.empty()) break;
    const auto space = line.find(' ');
    pids[line.substr(0, space)] = std::stoi(line.substr(space + 1));
  }
  EXPECT_EQ(pids.size(), names);
  return pids;
}

class ProgramEnd : public testing::TestWithParam<std::string> {};

TEST_P(ProgramEnd, StopsDaemonsAndLetsTheOthersFinish) {
  StartedProgram program("program_end_program", {"both", GetParam()});
  auto pids = pids_of(program, 3);
  kill(pids.at("program"), SIGUSR2);
  EXPECT_EQ(program.read_line(), "daemon stopped\n");  // So the end has begun.
  kill(pids.at("worker"), SIGUSR1);
  EXPECT_EQ(program.read_line(), "worker finished\n");
  EXPECT_EQ(program.wait_for_all(), 0);
}

TEST_P(ProgramEnd, StopsRanksWhoseGraceIsOver) {
  StartedProgram program("program_end_program", {"short grace", GetParam()});
  auto pids = pids_of(program, 2);
  kill(pids.at("program"), SIGUSR2);
  EXPECT_EQ(program.read_line(), "worker stopped\n");
  EXPECT_EQ(program.wait_for_all(), 0);
}

TEST_P(ProgramEnd, ByAnExceptionStopsAllAtOnce) {
  StartedProgram program("program_end_program", {"exception", GetParam()});
  auto pids = pids_of(program, 3);
  kill(pids.at("program"), SIGUSR2);
  std::string lines[] = {program.read_line(), program.read_line()};
  std::sort(std::begin(lines), std::end(lines));
  EXPECT_EQ(lines[0], "daemon stopped\n");
  EXPECT_EQ(lines[1], "worker stopped\n");
  EXPECT_EQ(WEXITSTATUS(program.wait_for_all()), 7);
}

TEST_P(ProgramEnd, LeavesAFinishingRankItsChildren) {
  StartedProgram program("program_end_program", {"child", GetParam()});
  auto pids = pids_of(program, 4);
  kill(pids.at("program"), SIGUSR2);
  EXPECT_EQ(program.read_line(), "daemon stopped\n");
  kill(pids.at("worker"), SIGUSR1);
  EXPECT_EQ(program.read_line(), "worker finished\n");
  EXPECT_EQ(program.read_line(), "child finished\n");
  EXPECT_EQ(program.wait_for_all(), 0);
}

TEST_P(ProgramEnd, ByASignalWaitsForNobody) {
  StartedProgram program("program_end_program", {"both", GetParam()});
  auto pids = pids_of(program, 3);
  kill(pids.at("program"), SIGKILL);
  EXPECT_EQ(program.read_all(), "");
  EXPECT_TRUE(WIFSIGNALED(program.wait_for_all()));
}

INSTANTIATE_TEST_SUITE_P(StartMethods, ProgramEnd, testing::Values("forkserver", "spawn", "fork"),
                         [](const auto& info) { return info.param; });

}  // namespace
