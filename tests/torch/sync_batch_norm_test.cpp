#include "retinue/torch/sync_batch_norm.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/state_dict.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "torch/trained_net.h"

namespace retinue {
namespace {

namespace nn = torch::nn;
using test::says;
using test::seeded;
using test::usage_error_of;

class SyncBatchNorms : public test::OnRanks {};
INSTANTIATE_TEST_SUITE_P(Backends, SyncBatchNorms, SyncBatchNorms::values(), SyncBatchNorms::name_of);

constexpr std::int64_t kChannels = 4;

/// The joined batch of all ranks, the same in all processes. It isn't centred.
at::Tensor numbers(unsigned seed, std::vector<std::int64_t> sizes, at::ScalarType type = at::kDouble) {
  return test::random_numbers(seed, sizes).mul(2).add(5).to(type);
}

/// How many rows of a joined batch of 6 each rank has; one of three has none.
std::vector<std::int64_t> rows_of(int ranks) {
  if (ranks == 1) return {6};
  return ranks == 2 ? std::vector<std::int64_t>{2, 4} : std::vector<std::int64_t>{5, 0, 1};
}

at::Tensor rows_of_rank(const at::Tensor& joined, const ProcessGroup& group) {
  return joined.split_with_sizes(rows_of(group->getSize()))[static_cast<std::size_t>(group->getRank())];
}

void expect_close(const at::Tensor& mine, const at::Tensor& expected, const std::string& what, double tolerance) {
  EXPECT_TRUE(mine.defined() == expected.defined()) << what;
  if (expected.defined()) {
    EXPECT_TRUE(mine.sizes() == expected.sizes() && torch::allclose(mine, expected, tolerance, tolerance))
        << what << mine << expected;
  }
}

/// Some steps of a SyncBatchNorm, and of a BatchNorm of one process with the joined batch.
template <class BatchNorm>
void expect_same(BatchNorm alone, const std::vector<std::int64_t>& shape, const ProcessGroup& group,
                 at::ScalarType type, double tolerance) {
  SyncBatchNorm sync(alone->options, group);
  alone->to(type);
  sync->to(type);
  if (alone->weight.defined()) {
    const torch::NoGradGuard no_grad;
    alone->weight.copy_(numbers(1, {kChannels}));
    alone->bias.copy_(numbers(2, {kChannels}));
    load_state_dict(*sync, state_dict(*alone));
  }
  for (unsigned step = 0; step < 3; ++step) {
    const at::Tensor values = numbers(10 + step, shape, type);
    const at::Tensor weights = numbers(20 + step, shape, type);
    const at::Tensor joined = values.clone().requires_grad_();
    const at::Tensor mine = rows_of_rank(values, group).clone().requires_grad_();
    const at::Tensor expected = alone(joined);
    const at::Tensor result = sync(mine);
    expect_close(result, rows_of_rank(expected, group), "result", tolerance);
    (expected.sin() * weights).sum().backward();
    (result.sin() * rows_of_rank(weights, group)).sum().backward();
    expect_close(mine.grad(), rows_of_rank(joined.grad(), group), "gradient of the input", tolerance);
    for (const auto& [name, buffer] :
         {std::pair{"mean", &SyncBatchNormImpl::running_mean}, std::pair{"variance", &SyncBatchNormImpl::running_var},
          std::pair{"count", &SyncBatchNormImpl::num_batches_tracked}}) {
      const at::Tensor other = buffer == &SyncBatchNormImpl::running_mean  ? alone->running_mean
                               : buffer == &SyncBatchNormImpl::running_var ? alone->running_var
                                                                           : alone->num_batches_tracked;
      expect_close((*sync).*buffer, other, name, tolerance);
    }
  }
  for (const auto& item : alone->named_parameters()) {
    const at::Tensor sum = sync->named_parameters()[item.key()].grad().clone();
    all_reduce(sum, group);
    expect_close(sum, item.value().grad(), item.key(), tolerance * 10);
  }
  alone->eval();
  sync->eval();
  if (group->getRank() == 0) {  // In eval mode alone.
    const at::Tensor values = numbers(30, shape, type);
    expect_close(sync(values), alone(values), "result in eval mode", tolerance);
  }
}

TEST_P(SyncBatchNorms, EqualOneProcessWithTheJoinedBatch) {
  on_ranks([](const ProcessGroup& group) {
    const nn::BatchNormOptions options(kChannels);
    expect_same(nn::BatchNorm1d(options), {6, kChannels}, group, at::kDouble, 1e-8);
    expect_same(nn::BatchNorm1d(options), {6, kChannels, 3}, group, at::kDouble, 1e-8);
    expect_same(nn::BatchNorm2d(options), {6, kChannels, 3, 2}, group, at::kDouble, 1e-8);
    expect_same(nn::BatchNorm3d(options), {6, kChannels, 3, 2, 2}, group, at::kDouble, 1e-8);
    expect_same(nn::BatchNorm2d(options), {6, kChannels, 3, 2}, group, at::kFloat, 2e-4);
  });
}

TEST_P(SyncBatchNorms, HaveTheOptionsOfBatchNorm) {
  on_ranks([](const ProcessGroup& group) {
    const auto options = [] { return nn::BatchNormOptions(kChannels); };
    for (const auto& each : {options().affine(false), options().momentum(std::nullopt), options().momentum(0.5),
                             options().eps(0.3), options().track_running_stats(false)})
      expect_same(nn::BatchNorm2d(each), {6, kChannels, 2, 2}, group, at::kDouble, 1e-8);
  });
}

TEST_P(SyncBatchNorms, TakeShortTypesAndOtherLayouts) {
  on_ranks([](const ProcessGroup& group) {
    SyncBatchNorm sync(kChannels, group);
    nn::BatchNorm2d alone(kChannels);
    const at::Tensor joined = numbers(3, {6, kChannels, 3, 2}, at::kFloat).contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor expected = rows_of_rank(alone(joined), group);
    const at::Tensor mine = rows_of_rank(joined, group);
    expect_close(sync(mine), expected, "of channels last", 1e-5);
    const at::Tensor half = mine.to(at::kBFloat16).requires_grad_();
    const at::Tensor result = sync(half);
    EXPECT_EQ(result.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(torch::allclose(result.to(at::kFloat), expected, 0.05, 0.05));
    result.sum().backward();
    EXPECT_EQ(half.grad().scalar_type(), at::kBFloat16);
  });
}

/// As LibTorch's Sequential can't contain another one itself.
struct BlockImpl : nn::Module {
  BlockImpl() : layers(register_module("layers", nn::Sequential(nn::Linear(8, 8), nn::BatchNorm1d(8)))) {}
  at::Tensor forward(const at::Tensor& x) { return layers->forward(x) + x; }
  nn::Sequential layers;
};
TORCH_MODULE(Block);

TEST_P(SyncBatchNorms, TrainWithDistributedDataParallel) {
  on_ranks([](const ProcessGroup& group) {
    const auto make = [] {
      return seeded(3, [] {
        return nn::Sequential(nn::Linear(6, 8), nn::BatchNorm1d(8), nn::ReLU(), Block(), nn::Linear(8, 3));
      });
    };
    nn::Sequential alone = make();
    nn::Sequential net = make();
    const at::Tensor before = net->parameters()[2];
    convert_sync_batchnorm(*net, group);
    EXPECT_TRUE(net->parameters()[2].is_same(before)) << "optimizers keep their parameters";
    EXPECT_EQ(state_dict(*net).keys(), state_dict(*alone).keys());
    DistributedDataParallel ddp(net, group);
    torch::optim::SGD optimizer(ddp.parameters(), 0.3);
    torch::optim::SGD optimizer_alone(alone->parameters(), 0.3);
    for (int step = 0; step < 5; ++step) {
      const auto [x, target] = test::joined_batch(step, group->getSize(), {6});
      optimizer_alone.zero_grad();
      torch::cross_entropy_loss(alone->forward(x), target).backward();
      optimizer_alone.step();
      const std::int64_t first = test::kBatch * group->getRank();
      optimizer.zero_grad();
      torch::cross_entropy_loss(ddp(x.narrow(0, first, test::kBatch)), target.narrow(0, first, test::kBatch))
          .backward();
      optimizer.step();
    }
    const StateDict expected = state_dict(*alone);
    for (const auto& entry : state_dict(*net)) expect_close(entry.value(), expected[entry.key()], entry.key(), 1e-4);
  });
}

/// LibTorch calls the member, not the registered module.
struct OwnNormImpl : nn::Module {
  OwnNormImpl() : norm(register_module("norm", nn::BatchNorm1d(3))) {}
  at::Tensor forward(const at::Tensor& x) { return norm(x); }
  nn::BatchNorm1d norm;
};

TEST_P(SyncBatchNorms, AreRefusedWhereLibTorchCantReplaceThem) {
  on_ranks([](const ProcessGroup& group) {
    nn::Sequential net(nn::BatchNorm1d(3), OwnNormImpl());
    const auto text_of = [&](nn::Module& module) {
      return usage_error_of([&] { convert_sync_batchnorm(module, group); });
    };
    EXPECT_TRUE(says(text_of(*net), "1.norm is one, and not in a torch::nn::Sequential")) << text_of(*net);
    EXPECT_NE(net[0]->as<nn::BatchNorm1d>(), nullptr) << "nothing is changed";
    EXPECT_TRUE(says(text_of(*nn::BatchNorm1d(3)), "the module itself is a batch norm"));
    nn::BatchNorm1d twice(3);
    nn::Sequential shared(twice, nn::ReLU(), twice);
    shared->eval();
    convert_sync_batchnorm(*shared, group);
    EXPECT_EQ(shared[0], shared[2]);
    EXPECT_FALSE(shared[0]->is_training());
  });
}

TEST_P(SyncBatchNorms, RefuseOneRanksInputOnAllRanks) {
  on_ranks([](const ProcessGroup& group) {
    const int last = group->getSize() - 1;
    const bool is_last = group->getRank() == last;
    SyncBatchNorm sync(kChannels, group);
    const auto expect = [&](const std::string& part, const at::Tensor& input) {
      const std::string text = usage_error_of([&] { sync(input); });
      EXPECT_TRUE(says(text, part)) << text;
    };
    const std::string rank = "SyncBatchNorm: rank " + std::to_string(last) + ": ";
    expect(rank + "the input has shape [2, 7]: it needs shape [batch, 4, ...]", torch::ones({2, is_last ? 7 : 4}));
    expect(rank + "the input is of type Int", torch::ones({2, 4}, is_last ? torch::kInt : torch::kFloat));
    expect("all ranks together have 0 values for each channel", torch::ones({0, 4}));
    if (last > 0) {
      const torch::AutoGradMode mode(!is_last);
      expect("calls forward without gradients (NoGradGuard)", torch::ones({2, 4}).requires_grad_());
    }
    const at::Tensor input = torch::ones({2, 4}).requires_grad_();
    const at::Tensor sum = sync(input).sum();
    const std::string text = usage_error_of([&] { torch::autograd::grad({sum}, {input}, {}, false, true); });
    EXPECT_TRUE(says(text, "call backward() without create_graph")) << text;
    EXPECT_EQ(sync->num_batches_tracked.item<std::int64_t>(), 1) << "refused ones don't count";
    EXPECT_NO_THROW(sync(torch::ones({2, 4}))) << "the group is usable";
    EXPECT_THROW(SyncBatchNorm(4, ProcessGroup()), UsageError);
  });
}

/// Only the first rank's input requires a gradient: the others take part in its backward all the same.
TEST_P(SyncBatchNorms, SumInBackwardIfOneRankNeedsIt) {
  on_ranks([](const ProcessGroup& group) {
    SyncBatchNorm sync(nn::BatchNormOptions(kChannels).affine(false), group);
    nn::BatchNorm1d alone(nn::BatchNormOptions(kChannels).affine(false));
    const at::Tensor joined = numbers(3, {6, kChannels}, at::kFloat).requires_grad_();
    const at::Tensor mine = rows_of_rank(joined.detach(), group).clone().requires_grad_(group->getRank() == 0);
    alone(joined).sin().sum().backward();
    sync(mine).sin().sum().backward();
    if (group->getRank() == 0)
      expect_close(mine.grad(), rows_of_rank(joined.grad(), group), "gradient of the input", 1e-4);
  });
}

}  // namespace
}  // namespace retinue
