// Averages of parameters over steps and over ranks; and Autocast.
#include "retinue/torch/model_averaging.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "retinue/torch/autocast.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/state_dict.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "torch/trained_net.h"

namespace retinue {
namespace {

namespace nn = torch::nn;
using test::run_training;
using test::says;
using test::seeded;
using test::usage_error_of;

void set_all(nn::Module& module, double value) {
  const torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : module.parameters()) parameter.fill_(value);
  for (at::Tensor& buffer : module.buffers()) buffer.fill_(value);
}

nn::Sequential net_with_buffers() {
  return nn::Sequential(nn::Linear(3, 4), nn::BatchNorm1d(4));
}

TEST(AveragedModels, HaveTheMeanOfAllModels) {
  nn::Sequential net = net_with_buffers();
  AveragedModel swa(net);
  EXPECT_TRUE(torch::equal(swa->parameters()[0], net->parameters()[0]));
  EXPECT_FALSE(swa->parameters()[0].is_same(net->parameters()[0]));
  for (const double value : {1.0, 2.0, 6.0}) {
    set_all(*net, value);
    swa.update_parameters(net);
  }
  for (const at::Tensor& parameter : swa->parameters())
    EXPECT_TRUE(torch::allclose(parameter, torch::full_like(parameter, 3))) << parameter;
  for (const at::Tensor& buffer : swa->buffers())
    EXPECT_TRUE(torch::allclose(buffer, torch::full_like(buffer, 6))) << "copied";
  EXPECT_EQ(swa.n_averaged.item<std::int64_t>(), 3);
  EXPECT_EQ(state_dict(swa).keys()[0], "module.0.weight");
  EXPECT_TRUE(state_dict(swa).contains("n_averaged"));
}

TEST(AveragedModels, HaveTheExponentialMovingAverage) {
  nn::Sequential net = net_with_buffers();
  AveragedModel ema(net, {.multi_avg_fn = get_ema_multi_avg_fn(0.75), .use_buffers = true});
  double expected = 1;
  for (const double value : {1.0, 2.0, 6.0}) {
    set_all(*net, value);
    ema.update_parameters(*net);
    expected = value == 1 ? 1 : 0.75 * expected + 0.25 * value;
  }
  for (const at::Tensor& parameter : ema->parameters())
    EXPECT_TRUE(torch::allclose(parameter, torch::full_like(parameter, expected))) << parameter;
  for (const auto& buffer : ema->named_buffers()) {
    // A count is of type long: each average of it is rounded down.
    const double value = says(buffer.key(), "num_batches") ? 2 : expected;
    EXPECT_TRUE(torch::allclose(buffer.value(), torch::full_like(buffer.value(), value))) << buffer.key();
  }
  EXPECT_TRUE(says(usage_error_of([] { get_ema_multi_avg_fn(1.5); }), "the decay is 1.5"));
  EXPECT_TRUE(says(usage_error_of([] { get_ema_multi_avg_fn(NAN); }), "it must be between 0 and 1"));
}

TEST(AveragedModels, LeaveRandomNumbersAsTheyAre) {
  nn::Sequential net = net_with_buffers();
  torch::manual_seed(3);
  const at::Tensor expected = torch::rand({4});
  torch::manual_seed(3);
  const AveragedModel swa(net);
  EXPECT_TRUE(torch::equal(torch::rand({4}), expected));
}

/// Can't be cloned.
struct OwnNetImpl : nn::Module {
  explicit OwnNetImpl(int size = 3) : layer(register_module("layer", nn::Linear(size, 2))) {}
  at::Tensor forward(const at::Tensor& x) { return layer(x); }
  nn::Linear layer;
};
TORCH_MODULE(OwnNet);

TEST(AveragedModels, TakeASecondModule) {
  OwnNet net;
  EXPECT_TRUE(says(usage_error_of([&] { AveragedModel model(net); }), "pass a second module"));
  EXPECT_TRUE(says(usage_error_of([&] { AveragedModel model(net, net); }), "are the same"));
  const std::string text = usage_error_of([&] { AveragedModel model(net, OwnNet(4)); });
  EXPECT_TRUE(says(text, "in place of parameter \"layer.weight\" of shape [2, 4]")) << text;
  AveragedModel swa(net, OwnNet());
  const at::Tensor x = torch::ones({1, 3});
  EXPECT_TRUE(torch::equal(swa(x), net(x)));
  EXPECT_TRUE(says(usage_error_of([&] { swa.update_parameters(nn::Linear(3, 2)); }), "the model has none in place of"));
  EXPECT_EQ(swa.n_averaged.item<std::int64_t>(), 0);
}

class Averaging : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, Averaging, testing::Values("shm", "gloo"));

/// Against all ranks' trainings in one process.
TEST_P(Averaging, EachFewStepsIsLocalSgd) {
  for (const int ranks : {1, 2, 3})
    run_training(ranks, GetParam(), [](const ProcessGroup& group) {
      const int size = group->getSize();
      const auto make = [] { return seeded(4, [] { return test::make_mlp(); }); };
      const auto train = [&](nn::Sequential& net, int step, int rank) {
        const auto [x, target] = test::joined_batch(step, size, {6});
        const auto part = [&](const at::Tensor& all) { return all.narrow(0, rank * test::kBatch, test::kBatch); };
        net->zero_grad();
        torch::cross_entropy_loss(net->forward(part(x)), part(target)).backward();
        torch::optim::SGD(net->parameters(), 0.5).step();
      };
      nn::Sequential net = make();
      std::vector<nn::Sequential> all;
      for (int rank = 0; rank < size; ++rank) all.push_back(make());
      PeriodicModelAverager averager(group, {.period = 3, .warmup_steps = 2});
      for (int step = 0; step < 9; ++step) {
        train(net, step, group->getRank());
        EXPECT_EQ(averager.average_parameters(net->parameters()), step == 2 || step == 5 || step == 8) << step;
        for (int rank = 0; rank < size; ++rank) train(all[static_cast<std::size_t>(rank)], step, rank);
        if (step == 2 || step == 5 || step == 8)
          for (std::size_t i = 0; i < net->parameters().size(); ++i) {
            const torch::NoGradGuard no_grad;
            at::Tensor sum = torch::zeros_like(net->parameters()[i]);
            for (nn::Sequential& each : all) sum += each->parameters()[i];
            for (nn::Sequential& each : all) each->parameters()[i].copy_(sum / size);
          }
        for (std::size_t i = 0; i < net->parameters().size(); ++i) {
          const at::Tensor expected = all[static_cast<std::size_t>(group->getRank())]->parameters()[i];
          EXPECT_TRUE(torch::allclose(net->parameters()[i], expected, 1e-4, 1e-6)) << "step " << step;
        }
      }
    });
}

TEST_P(Averaging, TakesSeveralTypesAndSharedParameters) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    const double own = group->getRank();
    const at::Tensor first = torch::full({3}, own);
    const at::Tensor second = torch::full({2, 2}, own, torch::kDouble).t().requires_grad_();
    PeriodicModelAverager averager(group, {.period = 2});
    EXPECT_TRUE(averager.average_parameters({first, second, first, at::Tensor()}));
    EXPECT_TRUE(torch::equal(first, torch::full({3}, 0.5)));
    EXPECT_TRUE(torch::equal(second.detach(), torch::full({2, 2}, 0.5, torch::kDouble)));
  });
}

TEST_P(Averaging, RefusesRanksAtDifferentSteps) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    const at::Tensor parameter = torch::ones({2});
    PeriodicModelAverager averager(group, {.period = 2});
    if (group->getRank() == 1) averager.step = 4;
    const std::string text = usage_error_of([&] { averager.average_parameters({parameter}); });
    EXPECT_TRUE(
        says(text, "rank 0 averages 1 parameters of 2 elements in step 0, but rank 1 averages 1 of 2 in step 4"))
        << text;
    averager.step = 2;
    EXPECT_TRUE(averager.average_parameters({parameter})) << "the group is usable";
    const auto make = [&](PeriodicModelAveragerOptions options) {
      return usage_error_of([&] { PeriodicModelAverager(group, options); });
    };
    EXPECT_TRUE(says(make({.period = 0}), "period is 0")) << make({.period = 0});
    EXPECT_TRUE(says(make({.warmup_steps = -1}), "warmup_steps -1"));
    EXPECT_THROW(PeriodicModelAverager({}, {}), UsageError);
  });
}

at::ScalarType type_of_product() {
  return torch::mm(torch::ones({2, 2}), torch::ones({2, 2})).scalar_type();
}

TEST(Autocasts, RestoreWhatWas) {
  EXPECT_EQ(type_of_product(), at::kFloat);
  {
    const Autocast outer(at::kCPU, at::kBFloat16);
    EXPECT_EQ(type_of_product(), at::kBFloat16);
    {
      const Autocast inner(at::kCPU, at::kHalf, {.cache_enabled = false});
      EXPECT_EQ(type_of_product(), at::kHalf);
      EXPECT_FALSE(at::autocast::is_autocast_cache_enabled());
      const Autocast off(at::kCPU, std::nullopt, {.enabled = false});
      EXPECT_EQ(type_of_product(), at::kFloat);
    }
    EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
    EXPECT_EQ(type_of_product(), at::kBFloat16);
    EXPECT_TRUE(says(usage_error_of([] { Autocast(at::kCPU, at::kDouble); }), "the type is Double"));
    EXPECT_EQ(type_of_product(), at::kBFloat16);
  }
  EXPECT_EQ(type_of_product(), at::kFloat);
  try {
    const Autocast autocast(at::kCPU);
    EXPECT_EQ(type_of_product(), at::kBFloat16);
    throw std::runtime_error("in the forward");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(type_of_product(), at::kFloat);
}

/// Else a step would use the weights of the one before.
TEST(Autocasts, ForgetConvertedWeights) {
  const at::Tensor weight = torch::ones({2, 2}).requires_grad_();
  const auto product = [&] {
    const Autocast autocast(at::kCPU);
    return torch::mm(torch::ones({2, 2}), weight)[0][0].item<float>();
  };
  EXPECT_EQ(product(), 2);
  weight.set_data(torch::full({2, 2}, 3.0));
  EXPECT_EQ(product(), 6);
  {
    const torch::NoGradGuard no_grad;
    weight.fill_(4);
  }
  EXPECT_EQ(product(), 8);
}

}  // namespace
}  // namespace retinue
