#pragma once

#include <gtest/gtest.h>

#include "retinue/launch/runtime.h"

/// The main of tests that start ranks: Runtime comes first, as in every program of Retinue's.
#define RETINUE_TEST_MAIN()               \
  int main(int argc, char** argv) {       \
    retinue::Runtime runtime(argc, argv); \
    testing::InitGoogleTest(&argc, argv); \
    return RUN_ALL_TESTS();               \
  }
