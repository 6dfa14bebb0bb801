#pragma once

#include <gtest/gtest.h>
#include <torch/cuda.h>

namespace retinue::test {

#ifdef RETINUE_CUDA
constexpr bool kHasCuda = true;
#else
constexpr bool kHasCuda = false;
#endif

/// Tests that are skipped, with the reason, where there is no GPU to use.
class NeedsCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!kHasCuda) GTEST_SKIP() << "built without RETINUE_CUDA";
    if (!torch::cuda::is_available()) GTEST_SKIP() << "LibTorch sees no CUDA device";
  }
};

}  // namespace retinue::test
