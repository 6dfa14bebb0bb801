#include <gtest/gtest.h>

#include <string>

#include "support/started_program.h"

namespace {

TEST(ShardedOptimizerExample, LearnsASine) {
  retinue::test::StartedProgram program("sharded_optimizer");
  const std::string text = program.read_all();
  EXPECT_EQ(program.wait_for_all(), 0);
  // The last loss of 200 steps; at first it is about 0.5.
  const std::size_t last = text.find("step 200: 0.0");
  EXPECT_NE(last, std::string::npos) << text;
}

}  // namespace
