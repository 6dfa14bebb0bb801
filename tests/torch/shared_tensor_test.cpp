#include "retinue/torch/shared_tensor.h"

#include <ATen/ATen.h>
#include <ATen/DLConvertor.h>
#include <gtest/gtest.h>

#include <vector>

#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "retinue/collective/dlpack.h"
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

/// The core's arrays and ATen's tensors are each other's, with the structs that ATen has.
TEST(SharedTensor, IsAnArrayOfTheCoreByDlpack) {
  run_ranks(2, [](const JobGroup& members) {
    Communicator group(members);
    group.barrier();  // The others have all that they need for calls.
    const std::size_t before = members.memory->allocated_bytes();
    group.barrier();
    {
      at::Tensor shared = shared_empty({3, 5}, members.memory, at::kBFloat16).fill_(members.rank + 1);
      const DlpackArray array = from_dlpack(at::toDLPackVersioned(shared));
      EXPECT_TRUE(members.memory->contains(array.input(), array.bytes()));
      group.all_reduce(array.output(), array.count(), array.dtype(), ReduceOp::kSum);
      EXPECT_TRUE(at::equal(shared, at::full({3, 5}, 3, at::kBFloat16)));
      EXPECT_THROW(from_dlpack(at::toDLPack(shared.t())), UsageError);
    }
    SharedBlock block = SharedBlock::allocate(members.memory, 4096);
    const ArrayLayout layout{.dtype = Dtype::kInt64, .shape = {2, 3}, .strides = {1, 2}, .byte_offset = 8};
    at::Tensor tensor = at::fromDLPack(to_dlpack<DLManagedTensor>(block, layout));
    at::Tensor same = at::fromDLPackVersioned(to_dlpack<DLManagedTensorVersioned>(block, layout));
    EXPECT_EQ(static_cast<const void*>(tensor.data_ptr()), block.data() + 8);
    block = SharedBlock();
    tensor.copy_(at::arange(6).view({2, 3}));
    EXPECT_TRUE(at::equal(same, at::arange(6).view({2, 3})));
    tensor = at::Tensor();
    EXPECT_EQ(same.strides(), (std::vector<std::int64_t>{1, 2}));
    EXPECT_GT(members.memory->allocated_bytes(), before);
    same = at::Tensor();
    group.barrier();
    EXPECT_EQ(members.memory->allocated_bytes(), before);
  });
}

TEST(SharedTensor, NeedsAJob) {
  EXPECT_THROW(shared_empty({2}), UsageError);
}

}  // namespace
}  // namespace retinue
