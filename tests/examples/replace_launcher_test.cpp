#include <gtest/gtest.h>

#include <string>

#include "launch/world_scene.h"
#include "support/says.h"
#include "support/started_program.h"

namespace {

TEST(ReplaceLauncherExample, MeetsAtAnAddressWithExplicitRanks) {
  const std::string url = "tcp://127.0.0.1:" + std::to_string(retinue::test::free_port());
  retinue::test::StartedProgram program("replace_launcher", {url});
  const std::string output = program.read_all();
  EXPECT_EQ(program.wait_for_all(), 0) << output;
  EXPECT_TRUE(retinue::test::says(output, "4 ranks, loss 0.0")) << output;
}

}  // namespace
