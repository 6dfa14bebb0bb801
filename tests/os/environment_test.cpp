#include "os/files/environment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace {

TEST(Environment, IsReplacedAsAWhole) {
  setenv("RETINUE_TEST_GONE", "x", 1);
  retinue::replace_environment({"RETINUE_TEST_KEPT=a=b", "RETINUE_TEST_CHANGED=old", "no variable"},
                               {{"RETINUE_TEST_CHANGED", "new"}, {"RETINUE_TEST_ADDED", ""}});
  EXPECT_EQ(std::getenv("RETINUE_TEST_GONE"), nullptr);
  EXPECT_STREQ(std::getenv("RETINUE_TEST_KEPT"), "a=b");
  EXPECT_STREQ(std::getenv("RETINUE_TEST_CHANGED"), "new");
  EXPECT_STREQ(std::getenv("RETINUE_TEST_ADDED"), "");
  EXPECT_EQ(retinue::current_environment().size(), 3u);
  // setenv goes on from there.
  setenv("RETINUE_TEST_LATER", "later", 1);
  unsetenv("RETINUE_TEST_KEPT");
  EXPECT_STREQ(std::getenv("RETINUE_TEST_LATER"), "later");
  EXPECT_EQ(std::getenv("RETINUE_TEST_KEPT"), nullptr);
}

}  // namespace
