// The main of tests that start ranks: Runtime comes first, as in every program of Retinue's.
#include <gtest/gtest.h>

#include "retinue/launch/runtime.h"

int main(int argc, char** argv) {
  const retinue::Runtime runtime(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
