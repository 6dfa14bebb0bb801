// As many small tensors as there are blocks of job memory, and more.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cereal/types/vector.hpp>
#include <cstdint>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/ipc/queue.h"
#include "retinue/launch/pool.h"
#include "retinue/launch/spawn.h"
#include "retinue/torch/shared_tensor.h"
#include "retinue/torch/tensor_archive.h"
#include "support/allocated.h"

using at::Tensor;
using retinue::is_shared;
using retinue::Queue;
using retinue::test::allocated;

namespace {

std::vector<Tensor> small_tensors(int count) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < count; ++i) tensors.push_back(at::full({1}, i, at::kInt));
  return tensors;
}

std::int64_t sum_of(retinue::RankContext&, const std::vector<Tensor>& tensors) {
  std::int64_t sum = 0;
  for (const Tensor& tensor : tensors) sum += *tensor.const_data_ptr<int>();
  return sum;
}

TEST(ManySmallTensors, AreArguments) {
  constexpr std::int64_t kCount = 100'000;
  const std::vector<Tensor> tensors = small_tensors(kCount);
  auto ranks = retinue::spawn<sum_of>({.join = false}, tensors);
  EXPECT_EQ(ranks.wait().value<std::int64_t>(0), kCount * (kCount - 1) / 2);
}

/// More than there are blocks: nothing has changed, and fewer can be sent.
TEST(ManySmallTensors, AreWhatTheyWereWhereTheyDoNotFit) {
  const std::size_t before = allocated();
  constexpr int kCount = 131'000;
  const std::vector<Tensor> tensors = small_tensors(kCount);
  EXPECT_THROW((retinue::spawn<sum_of>({}, tensors)), retinue::SharedMemoryExhausted);
  {
    retinue::Pool pool({.processes = 1});
    EXPECT_THROW((pool.apply<&sum_of>(tensors)), retinue::SharedMemoryExhausted);
    Queue<std::vector<Tensor>> queue({.capacity = 1});
    EXPECT_THROW(queue.put(tensors), retinue::SharedMemoryExhausted);
  }
  EXPECT_EQ(allocated(), before);
  for (int i = 0; i < kCount; ++i) {
    ASSERT_FALSE(is_shared(tensors[static_cast<std::size_t>(i)]));
    ASSERT_EQ(*tensors[static_cast<std::size_t>(i)].const_data_ptr<int>(), i);
  }
  tensors.front().resize_({2});
  auto ranks = retinue::spawn<sum_of>({.join = false}, std::vector<Tensor>(tensors.end() - 10, tensors.end()));
  EXPECT_EQ(ranks.wait().value<std::int64_t>(0), 10 * (kCount - 10) + 45);
}

TEST(ManySmallTensors, AreWhatTheyWereWhereNobodyTakesThem) {
  const std::vector<Tensor> tensors = small_tensors(2);
  retinue::Pool pool({.processes = 1});
  pool.close();
  EXPECT_THROW((pool.apply<&sum_of>(tensors)), retinue::Closed);
  EXPECT_THROW((retinue::spawn<sum_of>({.nprocs = 0}, tensors)), retinue::UsageError);
  Tensor of_a_graph = at::ones({1}).requires_grad_() * 2;
  EXPECT_THROW((retinue::start_processes<sum_of>({}, {{0, {tensors}}, {1, {std::vector<Tensor>{of_a_graph}}}})),
               retinue::UsageError);
  for (const Tensor& tensor : tensors) EXPECT_FALSE(is_shared(tensor));
}

}  // namespace
