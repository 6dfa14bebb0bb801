#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <string>

#include "cli/shell_run.h"
#include "support/started_program.h"

using retinue::test::contains;
using retinue::test::shell_run;
using retinue::test::StartedProgram;
using Result = retinue::test::ShellResult;

namespace {

TEST(Run, GivesTheEnvironmentOfTorchrun) {
  const Result result = shell_run(
      "$RETINUE run -n 2 sh -c 'echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $ROLE_RANK "
      "$ROLE_NAME $GROUP_WORLD_SIZE $ROLE_WORLD_SIZE $MASTER_ADDR $TORCHELASTIC_RESTART_COUNT "
      "$TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_RUN_ID; test $MASTER_PORT -gt 1023; test -n \"$OMP_NUM_THREADS\"'");
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_TRUE(contains(result.output, "0 0 2 2 0 0 default 1 2 127.0.0.1 0 0 none\n")) << result.output;
  EXPECT_TRUE(contains(result.output, "1 1 2 2 0 1 default 1 2 127.0.0.1 0 0 none\n")) << result.output;
}

TEST(Run, PassesTheProgramsOwnFlagsOn) {
  const Result result = shell_run("$RETINUE run -n 1 printf '%s|' -n 5 --help x");
  EXPECT_EQ(result.output, "-n|5|--help|x|");
}

TEST(Run, KeepsUserSettingsOfTheEnvironment) {
  const Result result =
      shell_run("OMP_NUM_THREADS=5 MASTER_PORT=4711 $RETINUE run sh -c 'echo $OMP_NUM_THREADS $MASTER_PORT'");
  EXPECT_EQ(result.output, "5 4711\n");
}

TEST(Run, ReturnsTheExitCodeOfTheRankThatFailed) {
  const Result result = shell_run("$RETINUE run -n 2 sh -c 'test $RANK = 0 && exec sleep 1000; exit 9'");
  EXPECT_EQ(WEXITSTATUS(result.status), 9) << result.output;
  EXPECT_TRUE(contains(result.output, "rank 1 (pid ")) << result.output;
  EXPECT_TRUE(contains(result.output, "exited with code 9")) << result.output;
}

TEST(Run, ReturnsASignalAsAShellDoes) {
  EXPECT_EQ(WEXITSTATUS(shell_run("$RETINUE run sh -c 'kill -SEGV $$'").status), 128 + SIGSEGV);
}

TEST(Run, SaysWhichProgramIsMissing) {
  const Result result = shell_run("$RETINUE run -n 2 ./no_such_program");
  EXPECT_EQ(WEXITSTATUS(result.status), 127);
  EXPECT_TRUE(contains(result.output, "executing './no_such_program': ENOENT")) << result.output;
  const Result by_name = shell_run("$RETINUE run no_such_program");
  EXPECT_EQ(WEXITSTATUS(by_name.status), 127);
  EXPECT_TRUE(contains(by_name.output, "no directory in PATH contains it")) << by_name.output;
}

TEST(Run, SaysWhyAProgramCannotBeExecuted) {
  for (const std::string program : {"/etc/passwd", "/"}) {
    const Result result = shell_run("$RETINUE run -n 2 " + program);
    EXPECT_EQ(WEXITSTATUS(result.status), 126) << result.output;
    EXPECT_TRUE(contains(result.output, "executing '" + program + "': EACCES")) << result.output;
    EXPECT_TRUE(contains(result.output, "chmod +x")) << result.output;
  }
}

TEST(Run, RefusesAWrongCount) {
  for (const std::string count : {"0", "-1", "two", "2x"}) {
    const Result result = shell_run("$RETINUE run -n " + count + " true");
    EXPECT_NE(result.status, 0);
    EXPECT_TRUE(contains(result.output, "is not a number of processes")) << result.output;
  }
  EXPECT_NE(shell_run("$RETINUE run -n 2").status, 0);
}

constexpr const char* kAnswerSignals =
    "trap 'echo got USR1' USR1; trap 'echo got TERM; exit 0' TERM; echo ready; while :; do sleep 0.01; done";

TEST(Run, ForwardsSignals) {
  StartedProgram command("retinue", {"run", "sh", "-c", kAnswerSignals});
  EXPECT_EQ(command.read_line(), "ready\n");
  kill(command.pid(), SIGUSR1);
  EXPECT_EQ(command.read_line(), "got USR1\n");
  kill(command.pid(), SIGTERM);
  EXPECT_EQ(command.read_line(), "got TERM\n");
  EXPECT_EQ(WEXITSTATUS(command.wait_for_all()), 128 + SIGTERM);
}

TEST(Run, ASigkillLeavesNoProcess) {
  StartedProgram command("retinue", {"run", "-n", "3", "sh", "-c", "echo ready; sleep 1000 & wait"});
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(command.read_line(), "ready\n");
  kill(command.pid(), SIGKILL);
  EXPECT_TRUE(WIFSIGNALED(command.wait_for_all()));
}

}  // namespace
