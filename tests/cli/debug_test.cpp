#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "cli/watched_job.h"
#include "process/observe/found_job.h"
#include "support/started_program.h"

using retinue::test::contains;
using retinue::test::listed_job;
using retinue::test::ranks_come_to;
using retinue::test::shell_run;
using retinue::test::StartedProgram;
using retinue::test::unique_name;
using retinue::test::wait_until;

namespace {

/// As `retinue debug` does it, until the descriptor is closed.
retinue::FileDescriptor pause_deadlines_of(const std::string& name) {
  for (retinue::FoundJob& job : retinue::find_jobs(retinue::WhoseJobs::kOwn))
    if (job.name() == name) return retinue::pause_deadlines(job);
  ADD_FAILURE() << "there is no job " << name;
  return {};
}

TEST(Debug, TheStopLadderWaitsUntilTheDebuggerLeaves) {
  const std::string name = unique_name("held");
  StartedProgram command("retinue", {"run", "--shutdown-timeout", "0", "--rdzv-id", name, "sh", "-c",
                                     "trap 'echo TERM' TERM; echo ready; while :; do sleep 0.01; done"});
  EXPECT_EQ(command.read_line(), "ready\n");
  retinue::FileDescriptor debugger = pause_deadlines_of(name);
  EXPECT_TRUE(wait_until([&] { return listed_job(name)["debugged"] == true; }));
  kill(command.pid(), SIGTERM);
  EXPECT_EQ(command.read_line(), "TERM\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // Nothing is to happen in this time.
  EXPECT_EQ(listed_job(name)["ranks"][0]["state"], "running");
  debugger.reset();
  EXPECT_EQ(command.read_all(), "");
  EXPECT_EQ(WEXITSTATUS(command.wait_for_all()), 128 + SIGTERM);
}

TEST(Debug, AKillDoesNotWaitForTheDebugger) {
  const std::string name = unique_name("killed");
  StartedProgram command("retinue", {"run", "--rdzv-id", name, "sh", "-c",
                                     "trap 'echo INT' INT; trap '' TERM; echo ready; while :; do sleep 0.01; done"});
  EXPECT_EQ(command.read_line(), "ready\n");
  const retinue::FileDescriptor debugger = pause_deadlines_of(name);
  kill(command.pid(), SIGINT);
  EXPECT_EQ(command.read_line(), "INT\n");
  kill(command.pid(), SIGINT);  // The second one.
  EXPECT_EQ(WEXITSTATUS(command.wait_for_all()), 128 + SIGINT);
}

/// Runs `retinue debug` for rank 0 of that program's job, and gives gdb a command.
std::string debug(const StartedProgram& program, const std::string& command) {
  return shell_run("echo '" + command + "' | $RETINUE debug --rank 0 " + std::to_string(program.pid())).output;
}

TEST(Debug, AttachesGdbWhileDeadlinesPause) {
  if (shell_run("which gdb").status != 0) GTEST_SKIP() << "there is no gdb";
  StartedProgram program("waiting_program");
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(program.read_line(), "ready\n");
  const std::string name = "waiting_program-" + std::to_string(program.pid());
  const std::string output = debug(program, "backtrace");
  if (!contains(output, "ptrace: Operation not permitted")) {
    EXPECT_TRUE(contains(output, "wait_for_a_look")) << output;
    const std::string listed = debug(program, "shell $RETINUE ps");
    EXPECT_TRUE(contains(listed, "debugged: its deadlines pause")) << listed;
    EXPECT_TRUE(contains(listed, " traced ")) << listed;
  }
  EXPECT_TRUE(wait_until([&] { return listed_job(name)["debugged"] == false; }));
  EXPECT_TRUE(ranks_come_to(name, {"running", "running"}));
  kill(program.pid(), SIGKILL);
  program.wait_for_all();
}

TEST(Debug, SaysWhatIsMissing) {
  StartedProgram program("waiting_program");
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(program.read_line(), "ready\n");
  const std::string job = std::to_string(program.pid());
  EXPECT_EQ(WEXITSTATUS(shell_run("$RETINUE debug " + job).status), 2);  // No rank.
  const auto absent = shell_run("$RETINUE debug --rank 9 " + job);
  EXPECT_EQ(WEXITSTATUS(absent.status), 1);
  EXPECT_TRUE(contains(absent.output, "no such running rank")) << absent.output;
  const auto without = shell_run("PATH=/nowhere $RETINUE debug --rank 0 " + job);
  EXPECT_EQ(WEXITSTATUS(without.status), 1);
  EXPECT_TRUE(contains(without.output, "executing gdb: install it")) << without.output;
  kill(program.pid(), SIGKILL);
  program.wait_for_all();
}

}  // namespace
