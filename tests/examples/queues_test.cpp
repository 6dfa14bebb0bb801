#include <gtest/gtest.h>

#include "support/started_program.h"

namespace {

TEST(QueuesExample, FinishesAllWorkAlthoughARankDies) {
  retinue::test::StartedProgram program("queues");
  EXPECT_EQ(program.read_line(), "squares: 10 of 10, lost: 0\n");
  EXPECT_EQ(program.read_line(), "dead letter: poison\n");
  EXPECT_EQ(program.read_line(), "it is there\n");
  EXPECT_EQ(program.read_line(), "rows: 1000\n");
  EXPECT_EQ(program.read_line(), "root: 1.5\n");
  EXPECT_EQ(program.read_line(), "greetings from outside\n");
  EXPECT_EQ(program.wait_for_all(), 0);
}

}  // namespace
