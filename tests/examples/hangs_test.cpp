#include <gtest/gtest.h>

#include <string>

#include "support/started_program.h"

namespace {

TEST(HangsExample, SaysWhyNothingGoesOn) {
  retinue::test::StartedProgram program("hangs");
  const std::string output = program.read_all();
  EXPECT_EQ(program.wait_for_all(), 0) << output;
  EXPECT_NE(output.find("hangs: ok, group \"context "), std::string::npos) << output;
  EXPECT_NE(output.find("deadlock, none of these waits can end: rank 0 waits to receive"), std::string::npos) << output;
}

}  // namespace
