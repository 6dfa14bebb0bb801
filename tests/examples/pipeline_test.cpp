#include <gtest/gtest.h>

#include <string>

#include "support/started_program.h"

namespace {

TEST(PipelineExample, CopiesNothingAfterTheFirstRound) {
  retinue::test::StartedProgram program("pipeline", {"--batches", "60"});
  const std::string output = program.read_all();
  EXPECT_EQ(program.wait_for_all(), 0) << output;
  EXPECT_NE(output.find("pipeline: ok batches=60 buffers=4 places=4"), std::string::npos) << output;
}

}  // namespace
