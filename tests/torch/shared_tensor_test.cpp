#include "retinue/torch/shared_tensor.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "retinue/base/error.h"
#include "support/ranks.h"

namespace retinue {
namespace {

using test::run_ranks;

TEST(SharedTensor, LivesInJobMemoryUntilItsLastUser) {
  run_ranks(1, [](const JobGroup& members) {
    const std::size_t before = members.memory->allocated_bytes();
    at::Tensor view;
    {
      at::Tensor tensor = shared_empty({3, 1000}, members.memory, at::kDouble);
      EXPECT_TRUE(is_shared(tensor));
      EXPECT_TRUE(members.memory->contains(tensor.data_ptr(), tensor.nbytes()));
      EXPECT_EQ(tensor.sizes(), (std::vector<std::int64_t>{3, 1000}));
      EXPECT_EQ(tensor.scalar_type(), at::kDouble);
      view = tensor.fill_(4)[1];
    }
    EXPECT_TRUE(is_shared(view));
    EXPECT_EQ(view.sum().item<double>(), 4000.0);
    EXPECT_GE(members.memory->allocated_bytes(), before + 24000);
    view = at::Tensor();
    EXPECT_EQ(members.memory->allocated_bytes(), before);
    EXPECT_EQ(shared_empty({0, 5}, members.memory).numel(), 0);
    EXPECT_FALSE(is_shared(at::ones({3})));
    EXPECT_THROW(shared_empty({2}, members.memory, at::kMeta), UsageError);
    EXPECT_THROW(shared_empty({-2}, members.memory), UsageError);
    EXPECT_TRUE(shared_empty({2}, members.memory, at::TensorOptions().requires_grad(true)).requires_grad());
  });
}

TEST(SharedTensor, NeedsAJob) {
  EXPECT_THROW(shared_empty({2}), UsageError);
}

}  // namespace
}  // namespace retinue
