#include <gtest/gtest.h>
#include <torch/torch.h>

#include <stdexcept>

#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/distributed_sampler.h"
#include "retinue/torch/process_group.h"
#include "retinue/torch/shared_tensor.h"

namespace retinue {
namespace {

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

void step_together(RankContext& context, int size) {
  const ProcessGroup from_environment = init_process_group();
  const ProcessGroup from_context = init_process_group(context, {.group_name = "second"});
  require(from_environment->getRank() == context.rank(), "the group's rank is the context's");
  require(from_context->getSize() == context.world_size(), "the group's size is the world's");
  at::Tensor tensor = shared_empty({size});
  tensor.fill_(context.rank() + 1.0f);
  all_reduce(tensor, from_environment);
  require(torch::equal(tensor, torch::full({size}, 3.0f)), "the sum over two ranks");
  broadcast(tensor, from_context, {.src = 1});
  DistributedDataParallel ddp(torch::nn::Linear(size, 2), from_environment);
  ddp(tensor).sum().backward();
  require(is_shared(ddp->weight.grad()), "gradients live in job memory");
  require(DistributedSampler(10, from_context).size() == 5, "the sampler knows the group");
}

TEST(SpawnedRanks, FindTheirGroupByThemselves) {
  EXPECT_NO_THROW(spawn<step_together>({.nprocs = 2}, 1000));
}

TEST(SpawnedRanks, TheProgramIsAWorldOfOne) {
  EXPECT_EQ(init_process_group()->getSize(), 1);
  EXPECT_TRUE(is_shared(shared_empty({3})));
}

}  // namespace
}  // namespace retinue

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
