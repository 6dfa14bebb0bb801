#include <gtest/gtest.h>

#include "support/started_program.h"

namespace {

TEST(PoolExample, PrintsWhatTheGuideSays) {
  retinue::test::StartedProgram program("pool");
  for (const char* line :
       {"4, 25, 168\n", "1229\n", "0 0 0 1 2 2 3 3 4\n", "std::out_of_range: there is no word 7\n", "ape bee bee ape\n",
        "lost: its worker was killed by SIGKILL\n", "1 and, by the new worker or the other one, 2\n", "30 and 33\n"})
    EXPECT_EQ(program.read_line(), line);
  EXPECT_EQ(program.wait_for_all(), 0);
}

}  // namespace
