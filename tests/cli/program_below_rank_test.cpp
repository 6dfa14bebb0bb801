// Programs that a rank's launcher starts: python, a shell, a script with several.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "cli/shell_run.h"
#include "support/paths.h"
#include "support/says.h"

using retinue::test::contains;
using retinue::test::count_of;
using retinue::test::shell_run;
using Result = retinue::test::ShellResult;

namespace {

const std::string kRankedProgram = RETINUE_BIN_DIR "/ranked_program";

void expect_both_ranks(const Result& result, const std::string& name) {
  EXPECT_EQ(result.status, 0) << result.output;
  for (const char* rank : {"rank 0 of 2", "rank 1 of 2"})
    EXPECT_EQ(count_of(result.output, name + ": " + rank + ", sum 3\n"), 1) << result.output;
}

TEST(ProgramBelowARank, IsTheRankWhereItsLauncherClosesDescriptors) {
  expect_both_ranks(shell_run("$RETINUE run -n 2 python3 -c \"import subprocess, sys; "
                              "sys.exit(subprocess.run(['" +
                              kRankedProgram + "', 'sum', 'python']).returncode)\""),
                    "python");
}

TEST(ProgramBelowARank, IsTheRankWhereItsLauncherOpensOthersByTheSameNumbers) {
  expect_both_ranks(shell_run("$RETINUE run -n 2 bash -c 'for fd in /proc/$$/fd/*; do fd=${fd##*/}; "
                              "[ $fd -le 2 ] || eval \"exec $fd</dev/zero\"; done; " +
                              kRankedProgram + " sum other'"),
                    "other");
}

TEST(ProgramBelowARank, MayFollowAnother) {
  const Result result =
      shell_run("$RETINUE run -n 2 sh -c '" + kRankedProgram + " sum prepare && " + kRankedProgram + " sum train'");
  expect_both_ranks(result, "prepare");
  expect_both_ranks(result, "train");
}

TEST(ProgramBelowARank, MayFollowOneThatDied) {
  const Result result =
      shell_run("$RETINUE run -n 2 sh -c '" + kRankedProgram + " die; " + kRankedProgram + " sum train'");
  expect_both_ranks(result, "train");
}

TEST(ProgramBelowARank, ThatFollowedIsNotTakenForTheOneBefore) {
  const Result result =
      shell_run("$RETINUE run -n 2 sh -c 'if [ $RANK = 0 ]; then " + kRankedProgram + " barrier; else " +
                kRankedProgram + " join; " + kRankedProgram + " stay /dev/null /dev/null; sleep 60; fi'");
  EXPECT_TRUE(contains(result.output, "PeerLost: ")) << result.output;
  EXPECT_EQ(WEXITSTATUS(result.status), 3) << result.output;
}

TEST(ProgramBelowARank, CannotBeTheRankBesideAnother) {
  std::string pattern = testing::TempDir() + "retinue_below_XXXXXX";
  const std::filesystem::path folder = mkdtemp(pattern.data());
  setenv("FOLDER", folder.c_str(), 1);
  const Result result =
      shell_run("$RETINUE run -n 2 sh -c 'mkfifo $FOLDER/there$RANK $FOLDER/end$RANK; " + kRankedProgram +
                " stay $FOLDER/there$RANK $FOLDER/end$RANK & read line < $FOLDER/there$RANK; " + kRankedProgram +
                " sum second; echo code $?; : > $FOLDER/end$RANK; wait'");
  std::filesystem::remove_all(folder);
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_EQ(count_of(result.output, "code 4\n"), 2) << result.output;
  for (const char* rank : {"rank 0 of 2", "rank 1 of 2"})
    EXPECT_TRUE(contains(result.output, std::string("RANK and WORLD_SIZE say that this process is ") + rank))
        << result.output;
  EXPECT_EQ(count_of(result.output, " is this rank already"), 2) << result.output;
  EXPECT_FALSE(contains(result.output, "rank 0 of 1")) << result.output;
}

TEST(ProgramBelowARank, OfARanksOwnIsNoSilentWorldOfOne) {
  const Result result = shell_run("$RETINUE run -n 2 " + kRankedProgram + " below");
  EXPECT_NE(result.status, 0) << result.output;
  EXPECT_TRUE(contains(result.output, "RANK and WORLD_SIZE say that this process is rank")) << result.output;
  EXPECT_FALSE(contains(result.output, "of 1,")) << result.output;
}

TEST(ProgramBelowARank, IsAloneInAnEnvironmentOfItsOwn) {
  const Result result = shell_run("$RETINUE run -n 2 env -i " + kRankedProgram + " sum alone");
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_EQ(count_of(result.output, "alone: rank 0 of 1, sum 1\n"), 2) << result.output;
}

TEST(ProgramBelowARank, IsAloneWhereItsRankIsTakenAway) {
  const Result result = shell_run("$RETINUE run -n 2 env -u RANK -u WORLD_SIZE " + kRankedProgram + " sum alone");
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_EQ(count_of(result.output, "alone: rank 0 of 1, sum 1\n"), 2) << result.output;
}

TEST(ProgramBelowARank, WarnsOfOtherNumbersThanItsLaunchers) {
  const Result result =
      shell_run("$RETINUE run -n 2 sh -c 'RANK=$((RANK + 4)) WORLD_SIZE=6 " + kRankedProgram + " sum low'");
  expect_both_ranks(result, "low");
  EXPECT_EQ(count_of(result.output,
                     "retinue: the environment differs from what the launcher set: RANK is 5, but was 1, WORLD_SIZE is "
                     "6, but was 2. rank_context() and join_world() still use rank 1 of 2 of the job"),
            1u)
      << result.output;
  const Result same = shell_run("$RETINUE run -n 2 " + kRankedProgram + " sum same");
  expect_both_ranks(same, "same");
  EXPECT_FALSE(contains(same.output, "differs from what the launcher set")) << same.output;
}

TEST(RankOfOthers, IsNoSilentWorldOfOne) {
  for (const char* launcher : {"RANK=1 WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2",
                               "PMI_RANK=1 PMI_SIZE=2", "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2"}) {
    const Result result = shell_run(std::string("env ") + launcher + " " + kRankedProgram + " sum other");
    EXPECT_EQ(WEXITSTATUS(result.status), 4) << result.output;
    EXPECT_TRUE(contains(result.output,
                         "this process is rank 1 of 2, but it is not a rank of a Retinue job: call join_world()"))
        << result.output;
  }
}

}  // namespace
