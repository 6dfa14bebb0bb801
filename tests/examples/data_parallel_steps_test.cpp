#include <gtest/gtest.h>

#include "support/started_program.h"

namespace {

TEST(DataParallelStepsExample, TrainsInEachWayAndGoesOnFromACheckpoint) {
  retinue::test::StartedProgram program("data_parallel_steps");
  EXPECT_EQ(program.read_all(), "40 steps of each kind, loss halved\nwith and without a stop the same\n");
  EXPECT_EQ(program.wait_for_all(), 0);
}

}  // namespace
