// What ranks do with tensors, where it may be in a container's attributes: a /dev/shm of 64 MB.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "process/observe/job_view.h"
#include "retinue/ipc/queue.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/distributed_sampler.h"
#include "retinue/torch/process_group.h"
#include "retinue/torch/shared_tensor.h"
#include "retinue/torch/tensor_archive.h"

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
  require(context.memory()->contains(ddp->weight.grad().data_ptr()), "gradients live in job memory");
  require(DistributedSampler(10, from_context).size() == 5, "the sampler knows the group");
}

TEST(SpawnedRanks, FindTheirGroupByThemselves) {
  EXPECT_NO_THROW(spawn<step_together>({.nprocs = 2}, 1000));
}

std::uint64_t steps_of(const RankContext& context) {
  for (const RankView& rank : view_ranks(*context.memory()))
    if (rank.rank == context.rank() && rank.pid == getpid()) return rank.steps;
  throw std::runtime_error("this rank isn't among those of the job");
}

void count_steps(RankContext& context) {
  const ProcessGroup group = init_process_group(context);
  const at::Tensor batch = torch::ones({1, 3});
  DistributedDataParallel ddp(torch::nn::Linear(3, 2), group);
  DistributedDataParallel second(torch::nn::Linear(3, 2), group, {.count_steps = false});
  for (int i = 0; i < 3; ++i) {
    ddp(batch).sum().backward();
    second(batch).sum().backward();
    torch::NoGradGuard evaluates;
    ddp(batch);
  }
  require(steps_of(context) == 3, "forwards that train the first model are steps");
  {
    const auto accumulates = ddp.no_sync();
    ddp(batch).sum().backward();
  }
  ddp(batch).sum().backward();
  require(steps_of(context) == 4, "a step may have several forwards");
}

TEST(SpawnedRanks, CountTheStepsOfTheirTraining) {
  EXPECT_NO_THROW(spawn<count_steps>({.nprocs = 2}));
  EXPECT_NO_THROW(spawn<count_steps>({.nprocs = 1}));
}

TEST(SpawnedRanks, TheProgramIsAWorldOfOne) {
  EXPECT_EQ(init_process_group()->getSize(), 1);
  EXPECT_TRUE(is_shared(shared_empty({3})));
}

/// Why this process's /dev/shm isn't one of 64 MB; empty if it is.
std::string no_small_dev_shm;

/// Before Runtime, so that the guardian and its ranks have it too.
void mount_small_dev_shm() {
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("none", "/dev/shm", "tmpfs", 0, "size=64m") != 0)
    no_small_dev_shm = std::string("a /dev/shm of the test's own is not permitted here: ") + strerrordesc_np(errno);
}

/// 131 MB in all.
constexpr int kInFlight = 4000;
constexpr std::int64_t kNumbers = 8192;

void send_many(int /*rank*/, Queue<at::Tensor> queue) {
  for (int i = 0; i < kInFlight; ++i) queue.put(torch::full({kNumbers}, i, torch::kFloat));
}

/// A rank sends more tensors than it may have descriptors, and ends; then they are received and kept, all of them.
void expect_many_in_flight() {
  Queue<at::Tensor> queue({.capacity = kInFlight});
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{64, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  std::vector<at::Tensor> received;
  EXPECT_NO_THROW(spawn<send_many>({.nprocs = 1}, queue));
  EXPECT_EQ(queue.size(), kInFlight);
  EXPECT_NO_THROW(received = queue.get_many(kInFlight, std::chrono::seconds(30)));
  setrlimit(RLIMIT_NOFILE, &before);
  ASSERT_EQ(received.size(), kInFlight);
  for (int i = 0; i < kInFlight; ++i) ASSERT_TRUE(received[i].eq(i).all().item<bool>()) << i;
}

TEST(TensorsInFlight, ThousandsNeedNoDescriptors) {
  expect_many_in_flight();
}

TEST(TensorsInFlight, MoreThanDevShmHolds) {
  if (!no_small_dev_shm.empty()) GTEST_SKIP() << no_small_dev_shm;
  expect_many_in_flight();
}

}  // namespace
}  // namespace retinue

int main(int argc, char** argv) {
  retinue::mount_small_dev_shm();
  retinue::Runtime runtime(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
