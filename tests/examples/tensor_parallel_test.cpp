#include <gtest/gtest.h>

#include "support/started_program.h"

namespace {

TEST(TensorParallelExample, LearnsSectors) {
  retinue::test::StartedProgram program("tensor_parallel");
  EXPECT_EQ(program.read_all(),
            "4224 weights on each rank; the loss fell to less than a fifth\n"
            "mean of all batches 0.00, gradient near 0\n");
  EXPECT_EQ(program.wait_for_all(), 0);
}

}  // namespace
