#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <string>

#include "cli/shell_run.h"
#include "os/process/process_stat.h"
#include "support/started_program.h"
#include "support/wait_until.h"

using retinue::test::shell_run;
using retinue::test::StartedProgram;
using retinue::test::wait_until;

namespace {

/// Waits until the process is stopped, or is not.
bool comes_to(int pid, bool stopped) {
  return wait_until([&] {
    const auto stat = retinue::process_stat(pid);
    return stat && (stat->state == 'T') == stopped;
  });
}

constexpr const char* kLoop = "while :; do sleep 0.01; done";

TEST(RunSignals, CtrlCReachesRanksOnceAndNoOtherSignalFollows) {
  // Rank 0 dies of it at once, which must not cut short what rank 1 does.
  const std::string body =
      "if test $RANK = 1; then trap 'echo INT; sleep 0.3; echo done; exit 0' INT; trap 'echo TERM' TERM; fi; "
      "echo ready; " +
      std::string(kLoop);
  StartedProgram command("retinue", {"run", "-n", "2", "sh", "-c", body});
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(command.read_line(), "ready\n");
  kill(command.pid(), SIGINT);
  EXPECT_EQ(command.read_all(), "INT\ndone\n");
  EXPECT_EQ(WEXITSTATUS(command.wait_for_all()), 128 + SIGINT);
}

TEST(RunSignals, ASecondCtrlCKills) {
  StartedProgram command("retinue",
                         {"run", "sh", "-c", "trap 'echo INT' INT; trap '' TERM; echo ready; " + std::string(kLoop)});
  EXPECT_EQ(command.read_line(), "ready\n");
  kill(command.pid(), SIGINT);
  EXPECT_EQ(command.read_line(), "INT\n");
  kill(command.pid(), SIGINT);
  EXPECT_EQ(command.read_all(), "");
  EXPECT_EQ(WEXITSTATUS(command.wait_for_all()), 128 + SIGINT);
}

TEST(RunSignals, TheShutdownTimeoutEndsInSigkill) {
  StartedProgram command("retinue", {"run", "--shutdown-timeout", "0", "sh", "-c",
                                     "trap 'echo TERM' TERM; echo ready; " + std::string(kLoop)});
  EXPECT_EQ(command.read_line(), "ready\n");
  kill(command.pid(), SIGTERM);
  EXPECT_EQ(WEXITSTATUS(command.wait_for_all()), 128 + SIGTERM);
}

TEST(RunSignals, CtrlZStopsRanksAndCommandAndFgContinuesBoth) {
  // No loop here: a shell whose child is stopped between vfork and exec shows no 'T'.
  StartedProgram command("retinue", {"run", "sh", "-c", "echo $$; exec sleep 1000"});
  const int rank = std::stoi(command.read_line());
  kill(command.pid(), SIGTSTP);
  int status = 0;
  ASSERT_EQ(waitpid(command.pid(), &status, WUNTRACED), command.pid());
  ASSERT_TRUE(WIFSTOPPED(status));
  EXPECT_TRUE(comes_to(rank, true));
  kill(command.pid(), SIGCONT);
  EXPECT_TRUE(comes_to(rank, false));
  kill(command.pid(), SIGTERM);
  EXPECT_EQ(WEXITSTATUS(command.wait_for_all()), 128 + SIGTERM);
}

TEST(RunSignals, WhatNohupIgnoresStaysIgnored) {
  signal(SIGHUP, SIG_IGN);
  StartedProgram command("retinue", {"run", "sh", "-c", "trap 'echo USR1' USR1; echo ready; " + std::string(kLoop)});
  signal(SIGHUP, SIG_DFL);
  EXPECT_EQ(command.read_line(), "ready\n");
  kill(command.pid(), SIGHUP);
  kill(command.pid(), SIGUSR1);
  EXPECT_EQ(command.read_line(), "USR1\n");
  kill(command.pid(), SIGTERM);
  EXPECT_EQ(WEXITSTATUS(command.wait_for_all()), 128 + SIGTERM);
}

TEST(RunSignals, ASignalThatEndsTheJobIsNoFailureToRestart) {
  StartedProgram command("retinue", {"run", "--max-restarts", "3", "sh", "-c", "echo ready; " + std::string(kLoop)});
  EXPECT_EQ(command.read_line(), "ready\n");
  kill(command.pid(), SIGTERM);
  EXPECT_EQ(command.read_all(), "");
  EXPECT_EQ(WEXITSTATUS(command.wait_for_all()), 128 + SIGTERM);
}

TEST(RunSignals, SignalsToHandleSaysWhichEndTheJob) {
  StartedProgram command("retinue", {"run", "--signals-to-handle", "SIGUSR2", "sh", "-c",
                                     "trap 'echo USR2; exit 3' USR2; echo ready; " + std::string(kLoop)});
  EXPECT_EQ(command.read_line(), "ready\n");
  kill(command.pid(), SIGUSR2);
  EXPECT_EQ(command.read_all(), "USR2\n");
  EXPECT_EQ(WEXITSTATUS(command.wait_for_all()), 128 + SIGUSR2);
}

TEST(RunSignals, WorksAsTheFirstProcessOfAContainer) {
  const std::string container = "unshare --pid --fork --mount-proc ";
  if (shell_run(container + "true").status != 0) GTEST_SKIP() << "this user may not make PID namespaces";
  const auto well = shell_run(container + "$RETINUE run -n 2 sh -c '(sleep 0.05 &) ; exit 0'");
  EXPECT_EQ(well.status, 0) << well.output;
  const auto ended = shell_run(container +
                               "$RETINUE run sh -c 'exec 2>/dev/null; trap \"echo TERM; exit 0\" TERM; kill -TERM 1; "
                               "while :; do sleep 0.01; done'");
  EXPECT_EQ(WEXITSTATUS(ended.status), 128 + SIGTERM) << ended.output;
  EXPECT_EQ(ended.output, "TERM\n");
  EXPECT_EQ(WEXITSTATUS(shell_run(container + "$RETINUE run -n 2 sh -c 'exit 4'").status), 4);
}

TEST(RunSignals, WorksWithAReadOnlyRootAndWithoutATemporaryFolder) {
  // Bound over itself, not hidden: the program under test may lie there.
  const std::string container =
      "unshare --mount sh -c 'mount --bind /tmp /tmp && mount -o remount,bind,ro /tmp && "
      "mount -o remount,bind,ro / && \"$@\"' sh ";
  if (shell_run(container + "true").status != 0) GTEST_SKIP() << "this user may not make mount namespaces";
  const auto result = shell_run(container + "$RETINUE run -n 2 sh -c 'echo $RANK; ! touch /tmp/x 2>/dev/null'");
  EXPECT_EQ(result.status, 0) << result.output;
}

}  // namespace
