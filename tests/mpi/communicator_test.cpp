#include <gtest/gtest.h>
#include <sys/wait.h>

#include <string>

#include "mpi/mpi_run.h"

using retinue::test::MpiRun;

namespace {

/// That mpirun, and all that came of it, ends, and well, and that nobody holds its output open.
void expect_ok(int ranks, const std::string& scene) {
  MpiRun run(ranks, "mpi_ranks_program", {scene});
  EXPECT_EQ(run.read_all(), scene + ": ok\n");
  EXPECT_EQ(run.wait_for_all(), 0);
}

class MpiCommunicator : public testing::TestWithParam<int> {};

TEST_P(MpiCommunicator, GivesWhatMpiGives) {
  expect_ok(GetParam(), "collectives");
}
TEST_P(MpiCommunicator, IsRefusedWhereItMakesNoSense) {
  expect_ok(GetParam(), "errors");
}
TEST_P(MpiCommunicator, IsOfTheJobThatRanksAreGuestsOf) {
  expect_ok(GetParam(), "guests");
}
INSTANTIATE_TEST_SUITE_P(Ranks, MpiCommunicator, testing::Values(1, 2, 4));

TEST(MpiCommunicators, OfRowsAndColumns) {
  expect_ok(4, "grid");
}

TEST(MpiCommunicators, OutliveMpiAndRank0) {
  for (const int ranks : {2, 4}) expect_ok(ranks, "finalized");
}

TEST(MpiCommunicators, TellOfAKilledRank) {
  MpiRun run(4, "mpi_ranks_program", {"survive"});
  int told = 0;
  int killed = 0;
  for (std::string line = run.read_line(); !line.empty(); line = run.read_line()) {
    told += line == "told\n" ? 1 : 0;
    killed += line == "killed\n" ? 1 : 0;
  }
  EXPECT_EQ(told, 3);
  EXPECT_EQ(killed, 1);
  EXPECT_EQ(run.wait_for_all(), 0);
}

TEST(MpiCommunicators, LeaveTheEndOfAKilledJobToMpirun) {
  MpiRun run(4, "mpi_ranks_program", {"killed"});
  run.read_all();
  EXPECT_NE(run.wait_for_all(), 0);
}

}  // namespace
