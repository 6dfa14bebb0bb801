#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "support/started_program.h"

namespace {

TEST(StoresExample, MeetsInAServedStoreAndInAFile) {
  setenv("RETINUE_TOKEN", "a token for this test", 1);  // None is to be made in the user's home.
  retinue::test::StartedProgram program("stores");
  EXPECT_EQ(program.read_line(), "part-0.bin\n");
  EXPECT_EQ(program.read_line(), "part-1.bin\n");
  EXPECT_EQ(program.read_line(), "part-2.bin\n");
  EXPECT_EQ(program.read_line(), "1 of 100 steps\n");
  const std::string timeout = program.read_line();
  EXPECT_NE(timeout.find("nobody set the key 'shard of 3' in time"), std::string::npos) << timeout;
  EXPECT_EQ(program.read_line(), "all have the same chief\n");
  EXPECT_EQ(program.read_line(), "the file is gone\n");
  EXPECT_EQ(program.wait_for_all(), 0);
}

}  // namespace
