// Tensors that can't be sent, in a job of little memory: each is as it was before.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>

#include "retinue/base/error.h"
#include "retinue/ipc/queue.h"
#include "retinue/launch/runtime.h"
#include "retinue/torch/shared_tensor.h"
#include "retinue/torch/tensor_archive.h"
#include "support/usage_error.h"

namespace retinue::test {
namespace {

TEST(RefusedTensor, ForWantOfMemoryIsAsItWas) {
  Queue<at::Tensor> queue({.capacity = 1});
  at::Tensor large = torch::ones({64 << 20});
  EXPECT_THROW(queue.put(large), SharedMemoryExhausted);
  EXPECT_FALSE(is_shared(large));
  large.resize_({2 << 20});
  large.resize_({65 << 20});  // Its storage may still grow.
  EXPECT_EQ(large[5].item<float>(), 1);
  const at::Tensor small = torch::ones({3});
  queue.put(small);
  EXPECT_TRUE(at::equal(queue.get(), small));
}

TEST(RefusedTensor, WithoutMemoryIsTold) {
  Queue<at::Tensor> queue({.capacity = 1});
  const at::Tensor zeros = at::_efficientzerotensor({3}, at::kFloat);
  EXPECT_NE(usage_error_of([&] { queue.put(zeros); }).find("has no memory"), std::string::npos);
  EXPECT_NE(usage_error_of([&] { share_memory_(zeros); }).find("tensor.clone()"), std::string::npos);
  queue.put(zeros.clone());
  EXPECT_TRUE(at::equal(queue.get(), torch::zeros({3})));
}

}  // namespace
}  // namespace retinue::test

int main(int argc, char** argv) {
  setenv("RETINUE_JOB_MEMORY", "128M", 1);
  retinue::Runtime runtime(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
