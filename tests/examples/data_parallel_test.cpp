#include <gtest/gtest.h>

#include "support/started_program.h"

namespace {

TEST(DataParallelExample, LearnsALine) {
  retinue::test::StartedProgram program("data_parallel");
  EXPECT_EQ(program.read_all(), "y = 2.00 x + 1.00\n");
  EXPECT_EQ(program.wait_for_all(), 0);
}

}  // namespace
