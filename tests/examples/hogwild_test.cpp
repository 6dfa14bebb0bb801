#include <gtest/gtest.h>

#include <regex>
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
  const std::string accuracy = "accuracy=(0\\.[0-9]{4}|1\\.0000)";
  EXPECT_TRUE(std::regex_search(output, std::regex("hogwild: in rounds of 20 batches: " + accuracy + "\n"))) << output;
  EXPECT_TRUE(std::regex_search(output, std::regex("hogwild: ok " + accuracy + " ranks=2\n"))) << output;
}

}  // namespace
