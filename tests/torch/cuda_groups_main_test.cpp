// Groups whose CUDA tensors go by NCCL: a rank for each GPU.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "retinue/launch/spawn.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/groups.h"
#include "retinue/torch/messages.h"
#include "retinue/torch/objects.h"
#include "retinue/torch/run.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "torch/needs_cuda.h"

using at::Tensor;
using retinue::ProcessGroup;
using retinue::UsageError;
using retinue::test::kHasCuda;
using retinue::test::says;
using retinue::test::usage_error_of;

namespace {

constexpr const char* kBackends = "cpu:shm,cuda:nccl";

TEST(CudaGroups, AreRefusedWhereNoneCanBe) {
  if (kHasCuda && torch::cuda::is_available()) GTEST_SKIP() << "they can be here";
  for (const char* backend : {kBackends, "nccl", "cuda:nccl"}) {
    const std::string text = usage_error_of([&] { retinue::init_process_group({.backend = backend}); });
    EXPECT_TRUE(says(text, "no nccl: ")) << text;
    EXPECT_TRUE(says(text, kHasCuda ? "CUDA_VISIBLE_DEVICES" : "CUDA build of LibTorch")) << text;
  }
}

class CudaGroup : public retinue::test::NeedsCuda {
 protected:
  static int ranks() { return static_cast<int>(torch::cuda::device_count()); }
};

Tensor on_gpu(std::vector<float> numbers) {
  return torch::tensor(numbers).to(at::Device(at::kCUDA, c10::DeviceIndex(-1)));
}

void check_collectives(const ProcessGroup& group, int size) {
  const auto rank = static_cast<float>(group->getRank());
  const float sum = static_cast<float>(size * (size - 1)) / 2;
  Tensor all = on_gpu({rank, 1});
  retinue::all_reduce(all, group);
  TORCH_CHECK(at::equal(all.cpu(), torch::tensor({sum, static_cast<float>(size)})), "all_reduce on GPUs: ", all);
  Tensor begun = on_gpu({rank});
  retinue::all_reduce(begun, group, {.async_op = true})->wait();
  TORCH_CHECK(begun.item<float>() == sum, "a begun all_reduce");
  Tensor host = torch::full({2}, rank);
  retinue::all_reduce(host, group);
  TORCH_CHECK(at::equal(host, torch::full({2}, sum)), "all_reduce on CPUs beside it");

  Tensor given = on_gpu({rank + 7});
  retinue::broadcast(given, group, {.src = size - 1});
  TORCH_CHECK(given.item<float>() == static_cast<float>(size) + 6, "broadcast");
  Tensor gathered = torch::zeros({size}, given.options());
  retinue::all_gather_into_tensor(gathered, on_gpu({rank}), group);
  TORCH_CHECK(at::equal(gathered.cpu(), torch::arange(size, at::kFloat)), "all_gather_into_tensor");
  Tensor part = on_gpu({0});
  retinue::reduce_scatter_tensor(part, gathered, group);
  TORCH_CHECK(part.item<float>() == rank * static_cast<float>(size), "reduce_scatter_tensor");
  Tensor exchanged = torch::zeros({size}, given.options());
  retinue::all_to_all_single(exchanged, torch::full({size}, rank, given.options()), group);
  TORCH_CHECK(at::equal(exchanged.cpu(), torch::arange(size, at::kFloat)), "all_to_all_single");

  retinue::barrier(group);
  retinue::barrier(group, {.device_ids = {group->getRank() % static_cast<int>(torch::cuda::device_count())}});
  std::string text = group->getRank() == 0 ? "text" : "";
  retinue::broadcast_object(text, group);
  TORCH_CHECK(text == "text", "objects");
}

void check_messages(const ProcessGroup& group, int size) {
  if (size == 1) return;
  const int rank = group->getRank();
  const int next = (rank + 1) % size;
  const int previous = (rank + size - 1) % size;
  const Tensor sent = on_gpu({static_cast<float>(rank)});
  const Tensor received = on_gpu({-1});
  for (const auto& work : retinue::batch_isend_irecv(
           {retinue::TensorP2POp::isend(sent, next), retinue::TensorP2POp::irecv(received, previous)}, group))
    work->wait();
  TORCH_CHECK(received.item<float>() == static_cast<float>(previous), "a ring of messages");
}

void train(const ProcessGroup& group) {
  torch::manual_seed(group->getRank());
  const c10::Device gpu(at::kCUDA,
                        static_cast<c10::DeviceIndex>(c10::impl::getDeviceGuardImpl(at::kCUDA)->getDevice().index()));
  torch::nn::Linear net(4, 1);
  net->to(gpu);
  retinue::DistributedDataParallel<torch::nn::Linear> ddp(net, group, {.check_divergence_every_n_steps = 1});
  torch::optim::SGD optimizer(ddp->parameters(), 0.1);
  Tensor serial_weight = ddp->weight.detach().cpu().clone();
  for (int step = 0; step < 3; ++step) {
    const Tensor batch = torch::full({2, 4}, 1.f + static_cast<float>(group->getRank()), at::TensorOptions(gpu));
    optimizer.zero_grad();
    ddp.forward(batch).sum().backward();
    optimizer.step();
    // The gradient of the weight is 2 x (rank + 1) on each rank.
    serial_weight -= 0.1 * (static_cast<double>(group->getSize()) + 1);
  }
  TORCH_CHECK(at::allclose(ddp->weight.cpu(), serial_weight), "the weights after three steps");
}

int use_gpus(const ProcessGroup& group, int size) {
  TORCH_CHECK(group->getSize() == size, "the world's size");
  check_collectives(group, size);
  check_messages(group, size);
  train(group);
  for (int turn = 0; turn < 2; ++turn) {
    ProcessGroup half = retinue::split_group(group, {.color = group->getRank() % 2});
    check_collectives(half, half->getSize());
    retinue::destroy_process_group(half);
  }
  ProcessGroup first = retinue::new_group({0}, group);
  if (first) check_collectives(first, 1);
  return size;
}

TEST_F(CudaGroup, HasCollectivesMessagesPartsAndTraining) {
  for (const char* backend : {kBackends, "nccl", "cpu:gloo,cuda:nccl"}) {
    auto context =
        retinue::spawn<retinue::run<use_gpus>>({.nprocs = ranks()}, retinue::RunOptions{.backend = backend}, ranks());
    EXPECT_TRUE(context.wait().ok()) << backend;
  }
}

TEST_F(CudaGroup, RefusesTensorsAndDevicesThatItCantUse) {
  const ProcessGroup group = retinue::init_process_group({.backend = kBackends});
  EXPECT_TRUE(says(usage_error_of([&] { retinue::barrier(group, {.device_ids = {0, 1}}); }), "the one GPU"));
  EXPECT_THROW(retinue::barrier(group, {.device_ids = {-1}}), UsageError);
  EXPECT_TRUE(says(usage_error_of([&] { retinue::barrier(group, {.device_ids = {100}}); }), "this process sees "));
  const ProcessGroup without = retinue::init_process_group({.group_name = "without"});
  EXPECT_TRUE(says(usage_error_of([&] { retinue::all_reduce(on_gpu({1}), without); }), "supports only CPU tensors"));
}

}  // namespace
