#include <gtest/gtest.h>

#include <string>

#include "support/started_program.h"

namespace {

TEST(ActorCriticExample, BalancesAPoleByWhatAsynchronousActorsSaw) {
  retinue::test::StartedProgram program("actor_critic");
  const std::string output = program.read_all();
  EXPECT_EQ(program.wait_for_all(), 0) << output;
  EXPECT_NE(output.find("actor_critic: ok pushes="), std::string::npos) << output;
}

}  // namespace
