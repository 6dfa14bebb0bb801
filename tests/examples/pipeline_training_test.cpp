#include <gtest/gtest.h>

#include <string>

#include "support/says.h"
#include "support/started_program.h"

namespace {

using retinue::test::says;

TEST(PipelineTrainingExample, LearnsInStages) {
  retinue::test::StartedProgram program("pipeline_training");
  const std::string text = program.read_all();
  for (const char* line : {"stage 0: 2 modules\n", "stage 1: 3 modules\n", "the loss fell to less than a fifth\n",
                           "trained two pipelines together\n"})
    EXPECT_TRUE(says(text, line)) << text;
  EXPECT_EQ(program.wait_for_all(), 0);
}

}  // namespace
