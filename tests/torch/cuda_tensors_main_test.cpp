// CUDA tensors as arguments and messages: lent by the process that allocated them.
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cereal/types/vector.hpp>
#include <csignal>
#include <string>
#include <vector>

#include "retinue/ipc/queue.h"
#include "retinue/launch/spawn.h"
#include "retinue/torch/shared_tensor.h"
#include "retinue/torch/tensor_archive.h"
#include "support/usage_error.h"
#include "support/wait_until.h"
#include "torch/needs_cuda.h"

using at::Tensor;
using retinue::Queue;
using retinue::test::usage_error_of;

namespace {

std::int64_t allocated_on_gpu() {
  at::globalContext().lazyInitDevice(at::kCUDA);  // Which has no statistics before.
  const auto stats = at::accelerator::getDeviceStats(0);
  return stats.allocated_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)].current;
}

class CudaTensor : public retinue::test::NeedsCuda {
 protected:
  const at::TensorOptions cuda_ = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
};

void add_one(int, const Tensor& given) {
  given.add_(1);
  torch::cuda::synchronize();
}

TEST_F(CudaTensor, ArrivesAsTheSameMemory) {
  const Tensor base = torch::zeros({1 << 20}, cuda_);
  const Tensor view = base.slice(0, 10, 20);
  retinue::spawn<add_one>({}, base);
  EXPECT_EQ(base.sum().item<float>(), 1 << 20);
  retinue::spawn<add_one>({.nprocs = 1}, view);
  EXPECT_EQ(base.sum().item<float>(), (1 << 20) + 10);
}

void check_aliases(int, const std::vector<Tensor>& all, Queue<Tensor> back) {
  TORCH_CHECK(all[0].is_alias_of(all[1]), "two views of one storage");
  TORCH_CHECK(all[1].stride(0) == 3 && all[1].storage_offset() == 2, "the view's place");
  TORCH_CHECK(all[2].is_cuda() && all[2].numel() == 0, "an empty one");
  TORCH_CHECK(all[3].requires_grad() && all[3].grad().is_cuda(), "a leaf");
  TORCH_CHECK(all[4].is_sparse() && all[4].is_cuda(), "a sparse one");
  all[1].fill_(7);
  back.put(all[1]);
  Tensor other = torch::ones({3}, all[0].options());
  back.put(other);  // Its receiver has let go before this process ends.
  retinue::cuda_ipc_collect();
}

TEST_F(CudaTensor, KeepsWhatItIsAndComesBackToItsOwner) {
  const Tensor base = torch::zeros({100}, cuda_);
  const Tensor leaf = torch::ones({2}, cuda_).requires_grad_(true);
  (leaf * leaf).sum().backward();
  const std::vector<Tensor> all = {base, base.slice(0, 2, 50, 3), torch::empty({0}, cuda_), leaf,
                                   torch::eye(3, cuda_).to_sparse()};
  Queue<Tensor> back({.capacity = 2});
  auto context = retinue::spawn<check_aliases>({.join = false}, all, back);
  const Tensor returned = back.get();
  EXPECT_EQ(returned.data_ptr(), all[1].data_ptr()) << "this process's own memory";
  EXPECT_TRUE(returned.is_alias_of(base));
  EXPECT_EQ(returned.sum().item<float>(), 16 * 7);
  EXPECT_EQ(back.get().sum().item<float>(), 3);
  context.join();
}

void pass_on(int, Queue<Tensor> from, Queue<Tensor> to) {
  to.put(from.get());
}

TEST_F(CudaTensor, IsPassedOnByItsReceiver) {
  const Tensor tensor = torch::ones({1000}, cuda_);
  Queue<Tensor> first({.capacity = 1});
  Queue<Tensor> second({.capacity = 1});
  Queue<Tensor> third({.capacity = 1});
  auto one = retinue::spawn<pass_on>({.join = false}, first, second);
  auto two = retinue::spawn<pass_on>({.join = false}, second, third);
  first.put(tensor);
  EXPECT_EQ(third.get().data_ptr(), tensor.data_ptr());
  one.join();
  two.join();
}

void multiply(int, Queue<Tensor> from, Queue<bool> seen) {
  for (int i = 0; i < 20; ++i) {
    const Tensor product = from.get();
    seen.put(at::equal(product, torch::full_like(product, 512.f * 2)));
  }
}

TEST_F(CudaTensor, IsReadyWhenItsReceiverUsesIt) {
  Queue<Tensor> queue({.capacity = 2});
  Queue<bool> seen({.capacity = 20});
  auto context = retinue::spawn<multiply>({.join = false}, queue, seen);
  for (int i = 0; i < 20; ++i) {
    Tensor a = torch::ones({512, 512}, cuda_);
    for (int j = 0; j < 200; ++j) a = a.matmul(torch::ones({512, 512}, cuda_)) / 512;  // Not done when it is sent.
    queue.put(a.matmul(torch::full({512, 512}, 2.f, cuda_)));
  }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(seen.get()) << i;
  context.join();
}

void be_killed_with(int, const Tensor&, Queue<bool> ready) {
  ready.put(true);
  raise(SIGKILL);
}

TEST_F(CudaTensor, IsLetGoWhenItsReceiversHaveLetGoOrDied) {
  const std::int64_t before = allocated_on_gpu();
  Queue<bool> ready({.capacity = 1});
  {
    Tensor lent = torch::zeros({10'000'000}, cuda_);
    auto context = retinue::spawn<be_killed_with>({.join = false}, lent, ready);
    lent = Tensor();
    EXPECT_TRUE(ready.get());
    EXPECT_FALSE(context.wait().ok());
  }
  // Or less, where what tests before this one lent came back since.
  EXPECT_TRUE(retinue::test::wait_until([&] {
    retinue::cuda_ipc_collect();
    return allocated_on_gpu() <= before;
  })) << allocated_on_gpu() - before;
}

Tensor give_back_what_was_lent(int, const Tensor& lent) {
  return lent.add_(1);
}

TEST_F(CudaTensor, ComesBackAsAResultWhereItIsItsReadersOwn) {
  const Tensor lent = torch::zeros({10}, cuda_);
  auto context = retinue::spawn<give_back_what_was_lent>({.join = false}, lent);
  const auto result = context.wait();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value<Tensor>(0).data_ptr(), lent.data_ptr());
  EXPECT_EQ(lent.sum().item<float>(), 10);
}

void take_empty(int, const Tensor& empty) {
  TORCH_CHECK(empty.is_cuda() && empty.numel() == 0);
}

TEST_F(CudaTensor, OfNoElementsKeepsItsDevice) {
  const auto last = static_cast<c10::DeviceIndex>(torch::cuda::device_count() - 1);
  const Tensor empty = torch::empty({0}, at::TensorOptions(at::Device(at::kCUDA, last)));
  retinue::spawn<take_empty>({}, empty);
  Queue<Tensor> queue({.capacity = 1});
  queue.put(empty);
  EXPECT_EQ(queue.get().device().index(), last);
}

Tensor make_one(int) {
  return torch::ones({3}, at::kCUDA);
}

void send_one(int, Queue<Tensor> queue) {
  queue.put(torch::ones({3}, at::kCUDA));
}

TEST_F(CudaTensor, EndsWithItsOwnerAndSaysSo) {
  const auto result = retinue::spawn<make_one>({.join = false}).wait();
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.failures().at(0).message.find("returning a tensor"), std::string::npos);
  Queue<Tensor> queue({.capacity = 1});
  retinue::spawn<send_one>({}, queue);  // Nobody takes it in the 5 s for which its owner waits.
  EXPECT_NE(usage_error_of([&] { queue.get(); }).find("has ended"), std::string::npos);
}

}  // namespace
