// SharedAllocation, and the allocator behind it.
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "retinue/ipc/job_memory.h"
#include "retinue/ipc/queue.h"
#include "retinue/torch/shared_tensor.h"
#include "retinue/torch/tensor_archive.h"
#include "support/allocated.h"

using at::Tensor;
using retinue::is_shared;
using retinue::JobMemory;
using retinue::test::allocated;

namespace {

TEST(SharedAllocation, HoldsForTheScopeAndTheThread) {
  const std::size_t before = allocated();
  {
    Tensor inside;
    torch::nn::Linear net = nullptr;
    {
      const retinue::SharedAllocation guard;
      inside = torch::rand({100});
      net = torch::nn::Linear(3, 2);
    }
    EXPECT_TRUE(is_shared(inside));
    EXPECT_TRUE(is_shared(*net));
    EXPECT_FALSE(is_shared(torch::rand({100})));
    EXPECT_GT(allocated(), before);
  }
  EXPECT_EQ(allocated(), before);
}

/// oneDNN takes memory past tensors.
TEST(SharedAllocation, ServesConvolutions) {
  at::set_num_threads(1);
  const Tensor input = torch::randn({8, 16, 28, 28});
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(16, 32, 3).padding(1));
  const Tensor expected = conv(input);
  expected.sum().backward();
  const Tensor expected_gradient = conv->weight.grad().clone();
  conv->zero_grad();
  const std::size_t before = allocated();
  {
    Tensor output;
    {
      const retinue::SharedAllocation guard;
      output = conv(input);
      output.sum().backward();
    }
    EXPECT_TRUE(is_shared(output));
    EXPECT_TRUE(is_shared(conv->weight.grad()));
    EXPECT_TRUE(torch::equal(output, expected));
    EXPECT_TRUE(torch::equal(conv->weight.grad(), expected_gradient));
    retinue::Queue<Tensor> queue({.capacity = 1});
    queue.put(output.detach());
    EXPECT_TRUE(torch::equal(queue.get(), expected));
    conv->zero_grad();
  }
  EXPECT_EQ(allocated(), before);
}

TEST(SharedAllocation, TakesBackWhatComesFromOutsideOrAfterwards) {
  const std::size_t before = allocated();
  void* outside = nullptr;
  void* inside = nullptr;
  { const retinue::SharedAllocation installs; }
  c10::Allocator& allocator = *c10::GetCPUAllocator();
  outside = allocator.raw_allocate(1000);
  {
    const retinue::SharedAllocation guard;
    inside = allocator.raw_allocate(1000);
    EXPECT_TRUE(JobMemory::current()->contains(inside, 1000));
    EXPECT_FALSE(JobMemory::current()->contains(outside));
    allocator.raw_deallocate(outside);
  }
  EXPECT_GT(allocated(), before);
  allocator.raw_deallocate(inside);
  EXPECT_EQ(allocated(), before);
}

/// A clone that is copied on write would leave job memory at the first write, and other processes would not see it.
TEST(SharedAllocation, MakesNoTensorsThatAreCopiedOnWrite) {
  Tensor inside;
  {
    const retinue::SharedAllocation guard;
    inside = torch::rand({100});
  }
  EXPECT_THROW(at::_lazy_clone(inside), c10::Error);
  EXPECT_TRUE(is_shared(inside));
}

}  // namespace
