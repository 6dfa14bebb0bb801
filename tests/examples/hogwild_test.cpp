#include <gtest/gtest.h>

#include <string>

#include "examples/fashion_mnist_files.h"
#include "launch/log_files.h"
#include "support/started_program.h"

namespace {

/// make examples trains on all of the real data.
TEST(HogwildExample, TrainsOneModelWithoutLocksAndShowsTheSynchronousCurveBesideIt) {
  const retinue::test::Folder data;
  retinue::test::write_fashion_mnist(data.path(), 6000, 500);
  retinue::test::StartedProgram program("hogwild", {"--sync", "20", "--data", data.path()});
  const std::string output = program.read_all();
  EXPECT_EQ(program.wait_for_all(), 0) << output;
  EXPECT_NE(output.find("loss      hogwild  in rounds\n"), std::string::npos) << output;
  EXPECT_NE(output.find("\n100 % "), std::string::npos) << output;
  EXPECT_NE(output.find("hogwild: in rounds of 20 batches: accuracy="), std::string::npos) << output;
  EXPECT_NE(output.find("hogwild: ok accuracy="), std::string::npos) << output;
}

}  // namespace
