#include <gtest/gtest.h>

#include <string>

#include "support/started_program.h"

namespace {

TEST(CollectivesExample, SortsNumbersOfAllRanks) {
  retinue::test::StartedProgram program("collectives");
  const std::string output = program.read_all();
  EXPECT_EQ(program.wait_for_all(), 0) << output;
  EXPECT_NE(output.find("collectives: ok ranks=4 numbers=1000000\n"), std::string::npos) << output;
}

}  // namespace
