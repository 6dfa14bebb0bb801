#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/says.h"
#include "support/started_program.h"

namespace {

/// The whole training on the real images: at least 0.92 of the test images, which the program checks.
void expect_accuracy(const std::vector<std::string>& flags) {
  retinue::test::StartedProgram program("train_resnet", flags);
  const std::string output = program.read_all();
  EXPECT_EQ(program.wait_for_all(), 0) << output;
  EXPECT_TRUE(retinue::test::says(output, "train_resnet: ok accuracy=0.9")) << output;
}

// Two tests, as each takes a quarter of an hour on two CPUs.
TEST(TrainResnetWhole, NamesNinetyTwoPercentOfTheTestImagesRight) {
  expect_accuracy({});
}

TEST(TrainResnetWhole, NamesAsManyWithSharedParameters) {
  expect_accuracy({"--share-parameters"});
}

}  // namespace
