#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <numeric>
#include <vector>

#include "support/allocated.h"

namespace retinue::test {

constexpr std::chrono::seconds kLong{60};

/// What pools make must be gone with them.
class PoolTest : public testing::Test {
 protected:
  void SetUp() override { before_ = allocated(); }
  void TearDown() override { EXPECT_EQ(allocated(), before_); }

 private:
  std::size_t before_ = 0;
};

inline std::vector<int> numbers(int count) {
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

inline int square(int number) {
  return number * number;
}

}  // namespace retinue::test
