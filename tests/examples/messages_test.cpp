#include <gtest/gtest.h>

#include <string>

#include "support/started_program.h"

namespace {

TEST(MessagesExample, SpreadsHeatAsOneRankAlone) {
  retinue::test::StartedProgram program("messages");
  const std::string output = program.read_all();
  EXPECT_EQ(program.wait_for_all(), 0) << output;
  EXPECT_NE(output.find("messages: ok ranks=3 points=12000 steps=500\n"), std::string::npos) << output;
}

}  // namespace
