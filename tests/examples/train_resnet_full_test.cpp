#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/says.h"
#include "support/started_program.h"

namespace {

/// The whole training on the real images: at least 0.92 of the test images, which the program checks.
TEST(TrainResnetWhole, NamesNinetyTwoPercentOfTheTestImagesRight) {
  for (const std::vector<std::string>& flags : {std::vector<std::string>{}, {"--share-parameters"}}) {
    retinue::test::StartedProgram program("train_resnet", flags);
    const std::string output = program.read_all();
    EXPECT_EQ(program.wait_for_all(), 0) << output;
    EXPECT_TRUE(retinue::test::says(output, "train_resnet: ok accuracy=0.9")) << output;
  }
}

}  // namespace
