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
using retinue::test::unique_name;
using retinue::test::wait_until;

namespace {

TEST(Stop, EndsAllRanksAndLeavesNothing) {
  const std::string name = unique_name("ended");
  StartedProgram command("retinue", {"run", "-n", "2", "--max-restarts", "3", "--rdzv-id", name, "sh", "-c",
                                     "echo $TORCHELASTIC_RESTART_COUNT; sleep 1000"});
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(command.read_line(), "0\n");
  const auto stopped = shell_run("$RETINUE stop " + name);
  EXPECT_EQ(stopped.status, 0) << stopped.output;
  EXPECT_EQ(command.read_all(), "");  // No restart.
  EXPECT_EQ(WEXITSTATUS(command.wait_for_all()), 128 + SIGTERM);
}

TEST(Stop, ContinuesStoppedRanksSoThatTheyCanEnd) {
  const std::string name = unique_name("continued");
  StartedProgram command("retinue", {"run", "--rdzv-id", name, "sh", "-c",
                                     "trap 'echo ends well; exit 0' TERM; echo ready; while :; do sleep 0.01; done"});
  EXPECT_EQ(command.read_line(), "ready\n");
  kill(listed_job(name)["ranks"][0]["pid"].get<pid_t>(), SIGSTOP);
  ASSERT_TRUE(ranks_come_to(name, {"stopped"}));
  EXPECT_EQ(shell_run("$RETINUE stop " + name).status, 0);
  EXPECT_EQ(command.read_all(), "ends well\n");
  command.wait_for_all();
}

TEST(Stop, SaysWhoIsLeftAfterTheTimeout) {
  const std::string name = unique_name("stubborn");
  StartedProgram command("retinue", {"run", "--shutdown-timeout", "1000", "--rdzv-id", name, "sh", "-c",
                                     "trap '' TERM; echo ready; while :; do sleep 0.01; done"});
  EXPECT_EQ(command.read_line(), "ready\n");
  const std::string pid = std::to_string(listed_job(name)["ranks"][0]["pid"].get<pid_t>());
  const auto stopped = shell_run("$RETINUE stop --timeout 0.2 " + name);
  EXPECT_EQ(WEXITSTATUS(stopped.status), 1);
  EXPECT_TRUE(contains(stopped.output, "rank 0 of context 1 (pid " + pid + "): running")) << stopped.output;
  EXPECT_TRUE(ranks_come_to(name, {"running"}));  // Who gave up waiting took nothing along.
  kill(command.pid(), SIGKILL);
  command.wait_for_all();
}

TEST(Stop, TheProgramStartsNoOthersAfterIt) {
  StartedProgram program("waiting_program");
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(program.read_line(), "ready\n");
  const auto stopped = shell_run("$RETINUE stop " + std::to_string(program.pid()));
  EXPECT_EQ(stopped.status, 0) << stopped.output;
  EXPECT_TRUE(contains(program.read_all(), "the job is being stopped (by `retinue stop`)"));
  EXPECT_EQ(program.wait_for_all(), 0);
}

TEST(Stop, SaysWhatThereIsWhenTheNameIsWrongOrNotEnough) {
  const std::string name = unique_name("twice");
  StartedProgram first("retinue", {"run", "--rdzv-id", name, "sleep", "1000"});
  StartedProgram second("retinue", {"run", "--rdzv-id", name + "_b", "sleep", "1000"});
  ASSERT_TRUE(ranks_come_to(name, {"running"}));
  ASSERT_TRUE(ranks_come_to(name + "_b", {"running"}));
  const std::string id = listed_job(name + "_b")["id"];
  const auto absent = shell_run("$RETINUE stop there_is_no_such_job");
  EXPECT_EQ(WEXITSTATUS(absent.status), 1);
  EXPECT_TRUE(contains(absent.output, "there is no job 'there_is_no_such_job'; the running jobs are:"))
      << absent.output;
  EXPECT_TRUE(contains(absent.output, name + "_b (id " + id)) << absent.output;
  const auto several = shell_run("$RETINUE stop " + name.substr(0, name.size() - 1));
  EXPECT_EQ(WEXITSTATUS(several.status), 1);
  EXPECT_TRUE(contains(several.output, "matches several jobs")) << several.output;
  EXPECT_TRUE(contains(several.output, id)) << several.output;
  EXPECT_EQ(shell_run("$RETINUE stop " + id).status, 0);
  EXPECT_TRUE(wait_until([&] { return listed_job(name + "_b").is_null(); }));
  EXPECT_TRUE(ranks_come_to(name, {"running"}));            // The other one was let alone.
  EXPECT_EQ(shell_run("$RETINUE stop " + name).status, 0);  // A whole name goes before beginnings.
  first.wait_for_all();
  EXPECT_EQ(WEXITSTATUS(shell_run("$RETINUE stop").status), 2);
}

TEST(Stop, RefusesNegativeTimesByName) {
  const auto stop = shell_run("$RETINUE stop --timeout -1 x");
  EXPECT_EQ(WEXITSTATUS(stop.status), 2);
  EXPECT_TRUE(contains(stop.output, "--timeout: '-1' is not a number of at least 0\n")) << stop.output;
  const auto stacks = shell_run("$RETINUE stacks --timeout=0 x");
  EXPECT_TRUE(contains(stacks.output, "--timeout: '0' is not a number greater than 0\n")) << stacks.output;
  const auto top = shell_run("$RETINUE top --interval=-0.5 x");
  EXPECT_TRUE(contains(top.output, "--interval: '-0.5' is not a number greater than 0\n")) << top.output;
  const auto run = shell_run("$RETINUE run --shutdown-timeout -1 true");
  EXPECT_EQ(WEXITSTATUS(run.status), 2);
  EXPECT_TRUE(contains(run.output, "--shutdown-timeout: '-1' is not a whole number of at least 0\n")) << run.output;
}

}  // namespace
