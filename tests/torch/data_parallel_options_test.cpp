// Options of DistributedDataParallel that change what it averages, and how.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/gradient_hooks.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "torch/trained_net.h"

namespace retinue {
namespace {

namespace nn = torch::nn;
using test::make_mlp;
using test::part_of;
using test::run_training;
using test::says;
using test::seeded;
using test::usage_error_of;

class DataParallelOptions : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, DataParallelOptions, testing::Values("shm", "gloo"));

/// Three layers, of which each forward may leave some out.
struct OptionalLayersImpl : nn::Module {
  OptionalLayersImpl()
      : first(register_module("first", nn::Linear(6, 3))),
        second(register_module("second", nn::Linear(6, 3))),
        third(register_module("third", nn::Linear(6, 3))) {}
  at::Tensor forward(const at::Tensor& input, bool uses_second, bool uses_third) {
    at::Tensor sum = torch::tanh(first(input));
    if (uses_second) sum = sum + second(input);
    if (uses_third) sum = sum * third(input);
    return sum;
  }
  nn::Linear first, second, third;
};
TORCH_MODULE(OptionalLayers);

/// The mean of the ranks' gradients of `loss_of(net, rank)`.
template <class Net, class LossOf>
std::vector<at::Tensor> expected_gradients(Net net, int ranks, LossOf loss_of) {
  net->zero_grad();
  for (int rank = 0; rank < ranks; ++rank) (loss_of(net, rank) / ranks).backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : net->parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

template <class Model>
void expect_gradients(Model& ddp, const std::vector<at::Tensor>& expected, const std::string& where) {
  const auto named = ddp.named_parameters();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor& gradient = named[i].value().grad();
    ASSERT_EQ(gradient.defined(), expected[i].defined()) << where << " " << named[i].key();
    if (!gradient.defined()) continue;
    EXPECT_TRUE(torch::allclose(gradient, expected[i], 1e-4, 1e-5)) << where << " " << named[i].key();
  }
}

TEST_P(DataParallelOptions, AStaticGraphMayLeaveParametersOut) {
  for (const int ranks : {1, 2, 3})
    run_training(ranks, GetParam(), [&](const ProcessGroup& group) {
      OptionalLayers alone = seeded(5, [] { return OptionalLayers(); });
      DistributedDataParallel ddp(seeded(5, [] { return OptionalLayers(); }), group, {.static_graph = true});
      // The second layer is used by rank 0 alone, the third by none.
      for (int step = 0; step < 4; ++step) {
        const auto loss_of = [&](auto& net, int rank) {
          return net->forward(part_of(step, group, rank), rank == 0, false).square().sum();
        };
        ddp->zero_grad();
        loss_of(ddp, group->getRank()).backward();
        expect_gradients(ddp, expected_gradients(alone, ranks, loss_of), "step " + std::to_string(step));
      }
      EXPECT_FALSE(ddp->third->weight.grad().defined());
    });
}

TEST_P(DataParallelOptions, AStaticGraphThatChangesIsToldOnAllRanks) {
  for (const bool adds : {false, true})
    run_training(2, GetParam(), [&](const ProcessGroup& group) {
      DistributedDataParallel ddp(OptionalLayers(), group, {.static_graph = true});
      const at::Tensor input = torch::ones({2, 6});
      ddp(input, true, false).sum().backward();
      ddp(input, true, false).sum().backward();
      const bool is_other = group->getRank() == 1;
      const at::Tensor loss = ddp(input, adds || !is_other, adds && is_other).sum();
      const std::string error = usage_error_of([&] { loss.backward(); });
      EXPECT_TRUE(says(error, "on rank 1: parameter")) << error;
      EXPECT_TRUE(says(error, adds
                                  ? "third.weight\" (and 1 more) got a gradient in this backward, but none in the first"
                                  : "second.weight\" (and 1 more) got no gradient in this backward, but in the first"))
          << error;
    });
}

TEST_P(DataParallelOptions, ANaNInAGradientIsToldWithItsParameterAndRank) {
  run_training(3, GetParam(), [](const ProcessGroup& group) {
    DistributedDataParallel ddp(OptionalLayers(), group, {.find_unused_parameters = true, .check_gradients = true});
    const at::Tensor input = torch::ones({2, 6});
    EXPECT_NO_THROW((ddp(input, true, true) * INFINITY).sum().backward());  // A loss scale may be too large.
    ddp->zero_grad();
    at::Tensor output = ddp(input, true, false);
    if (group->getRank() == 2) output = output + ddp->second(input) * NAN;
    const at::Tensor loss = output.sum();
    const std::string error = usage_error_of([&] { loss.backward(); });
    EXPECT_TRUE(says(error, "on rank 2: the gradient of parameter \"second.")) << error;
    EXPECT_TRUE(says(error, "has NaN in it")) << error;
  });
}

TEST_P(DataParallelOptions, WithoutInitSyncRanksKeepTheirValues) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    nn::Linear net(3, 2);
    {
      const torch::NoGradGuard no_grad;
      net->weight.fill_(group->getRank());
    }
    DistributedDataParallel ddp(net, group, {.init_sync = false});
    EXPECT_EQ(net->weight[0][0].item<float>(), static_cast<float>(group->getRank()));
    (ddp(torch::ones({1, 3})).sum() * group->getRank()).backward();
    EXPECT_EQ(net->weight.grad()[0][0].item<float>(), 0.5F);
  });
}

TEST_P(DataParallelOptions, IgnoredParametersAreEachRanksOwn) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    const int rank = group->getRank();
    nn::Sequential net(nn::Linear(3, 3), nn::Linear(3, rank == 0 ? 1 : 2));  // Even their shapes may differ.
    {
      const torch::NoGradGuard no_grad;
      for (const at::Tensor& parameter : net->parameters()) parameter.fill_(rank + 1);
    }
    DistributedDataParallel ddp(net, group, {.parameters_to_ignore = {"1.weight", "1.bias"}});
    EXPECT_EQ(ddp.parameters().size(), 4U);
    const auto named = ddp.named_parameters();
    EXPECT_EQ(named["0.weight"][0][0].item<float>(), 1);
    EXPECT_EQ(named["1.weight"][0][0].item<float>(), static_cast<float>(rank + 1));
    (ddp(torch::ones({1, 3})).sum() * (rank + 1)).backward();
    EXPECT_EQ(named["1.bias"].grad()[0].item<float>(), static_cast<float>(rank + 1));
    const at::Tensor gradient = named["0.bias"].grad();
    const at::Tensor other = gradient.clone();
    broadcast(other, group);
    EXPECT_TRUE(other.equal(gradient));
    const std::string error =
        usage_error_of([&] { DistributedDataParallel(nn::Linear(3, 3), group, {.parameters_to_ignore = {"wieght"}}); });
    EXPECT_TRUE(says(error, "parameters_to_ignore has \"wieght\", but the module has no parameter or buffer")) << error;
  });
}

TEST_P(DataParallelOptions, AReducerMayBeChosen) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    const auto loss_of = [&](auto& net, int rank) { return net->forward(part_of(0, group, rank)).square().sum(); };
    nn::Sequential alone = seeded(5, [] { return make_mlp(); });
    DistributedDataParallel ddp(seeded(5, [] { return make_mlp(); }), group, {.reducer = ReducerKind::kC10d});
    loss_of(ddp, group->getRank()).backward();
    expect_gradients(ddp, expected_gradients(alone, 2, loss_of), "c10d");
    const std::string error =
        usage_error_of([&] { DistributedDataParallel(make_mlp(), group, {.reducer = ReducerKind::kJobMemory}); });
    EXPECT_EQ(says(error, "kJobMemory needs CPU parameters and ranks that share memory"),
              std::string(GetParam()) == "gloo")
        << error;
  });
}

TEST_P(DataParallelOptions, HooksOf16BitsAverage) {
  for (const bool is_bfloat : {false, true})
    for (const int ranks : {1, 2, 3})
      run_training(ranks, GetParam(), [&](const ProcessGroup& group) {
        const auto loss_of = [&](auto& net, int rank) { return net->forward(part_of(0, group, rank)).square().sum(); };
        nn::Sequential alone = seeded(5, [] { return make_mlp(); });
        std::shared_ptr<GradientHook> hook = std::make_shared<Fp16Compress>();
        if (is_bfloat) hook = std::make_shared<Bf16Compress>();
        DistributedDataParallel ddp(seeded(5, [] { return make_mlp(); }), group, {.hook = hook});
        loss_of(ddp, group->getRank()).backward();
        const auto expected = expected_gradients(alone, ranks, loss_of);
        bool has_rounded = false;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const at::Tensor& gradient = ddp.parameters()[i].grad();
          EXPECT_TRUE(torch::allclose(gradient, expected[i], 0.02, is_bfloat ? 0.1 : 0.02)) << i;
          has_rounded |= !torch::allclose(gradient, expected[i], 1e-5, 1e-6);
        }
        EXPECT_EQ(has_rounded, ranks > 1);
      });
}

TEST_P(DataParallelOptions, PowerSgdApproximatesAndMakesUpForIt) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    constexpr int kExact = 2, kSteps = 60;
    const auto hook =
        std::make_shared<PowerSgd>(PowerSgdOptions{.matrix_approximation_rank = 1, .start_powerSGD_iter = kExact});
    DistributedDataParallel ddp(seeded(5, [] { return nn::Linear(20, 20); }), group, {.hook = hook});
    nn::Linear alone = seeded(5, [] { return nn::Linear(20, 20); });
    // The same gradient in each step: with error feedback, what one step loses the following ones add.
    const auto loss_of = [&](auto& net, int rank) {
      torch::manual_seed(10 + rank);
      return net->forward(torch::randn({30, 20})).square().sum();
    };
    const at::Tensor exact = expected_gradients(alone, 2, loss_of).front();
    at::Tensor sum = torch::zeros_like(exact);
    for (int step = 0; step < kSteps; ++step) {
      ddp->zero_grad();
      loss_of(ddp, group->getRank()).backward();
      const at::Tensor gradient = ddp->weight.grad();
      EXPECT_EQ(torch::allclose(gradient, exact, 1e-4, 1e-4), step < kExact) << step;
      const std::int64_t rank = at::linalg_matrix_rank(gradient, 1e-3).item<std::int64_t>();
      EXPECT_EQ(rank == 1, step >= kExact) << step;
      sum += gradient;
      at::Tensor other = gradient.clone();
      broadcast(other, group);
      EXPECT_TRUE(torch::allclose(other, gradient)) << step;
      EXPECT_TRUE(torch::allclose(ddp->bias.grad(), expected_gradients(alone, 2, loss_of)[1], 1e-4, 1e-4));
    }
    const double lost = ((sum / kSteps - exact).norm() / exact.norm()).item<double>();
    EXPECT_LT(lost, 0.35);
    // A rank as high as the matrix's loses nothing.
    const auto whole = std::make_shared<PowerSgd>(
        PowerSgdOptions{.matrix_approximation_rank = 20, .start_powerSGD_iter = kExact, .min_compression_rate = 0.1});
    DistributedDataParallel exact_ddp(seeded(5, [] { return nn::Linear(20, 20); }), group, {.hook = whole});
    for (int step = 0; step < 4; ++step) {
      exact_ddp->zero_grad();
      loss_of(exact_ddp, group->getRank()).backward();
      EXPECT_TRUE(torch::allclose(exact_ddp->weight.grad(), exact, 1e-3, 1e-2)) << step;
    }
  });
}

/// Counts, and averages as DistributedDataParallel itself does.
class CountingHook final : public GradientHook {
 public:
  std::function<void()> start(const GradBucket& bucket, const ProcessGroup& group) override {
    EXPECT_EQ(bucket.gradients.size(), bucket.parameters.size());
    gradients += bucket.gradients.size();
    lasts += bucket.is_last;
    if (throws) throw std::runtime_error("the hook's own error");
    return [tensors = bucket.gradients, group] {
      for (const at::Tensor& tensor : tensors) all_reduce(tensor, group, {.op = c10d::ReduceOp::SUM});
      for (const at::Tensor& tensor : tensors) at::Tensor(tensor).div_(group->getSize());
    };
  }

  std::size_t gradients = 0;
  int lasts = 0;
  bool throws = false;
};

TEST_P(DataParallelOptions, AHookOfTheProgramAverages) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    const auto loss_of = [&](auto& net, int rank) { return net->forward(part_of(0, group, rank)).square().sum(); };
    nn::Sequential alone = seeded(5, [] { return make_mlp(); });
    const auto hook = std::make_shared<CountingHook>();
    DistributedDataParallel ddp(seeded(5, [] { return make_mlp(); }), group, {.hook = hook});
    loss_of(ddp, group->getRank()).backward();
    expect_gradients(ddp, expected_gradients(alone, 2, loss_of), "hook");
    EXPECT_EQ(hook->gradients, alone->parameters().size());
    EXPECT_EQ(hook->lasts, 1);
    hook->throws = true;
    const at::Tensor loss = loss_of(ddp, group->getRank());
    EXPECT_THROW(loss.backward(), std::runtime_error);
  });
}

TEST(Hooks, TakeALastBucketWithoutGradients) {
  run_training(2, "shm", [](const ProcessGroup& group) {
    for (const auto& hook :
         std::vector<std::shared_ptr<GradientHook>>{std::make_shared<Bf16Compress>(), std::make_shared<PowerSgd>()}) {
      DistributedDataParallel ddp(OptionalLayers(), group, {.find_unused_parameters = true, .hook = hook});
      // Buckets are in the order of backward. The last one, with the first layer, has nothing.
      const at::Tensor loss = ddp->second(torch::ones({2, 6})).sum();
      EXPECT_NO_THROW(loss.backward());
      const auto none = GradBucket{.is_last = true};
      EXPECT_NO_THROW(hook->start(none, group)());
    }
  });
}

TEST(PowerSgds, RefuseOptionsOutOfRange) {
  const auto error_of = [](PowerSgdOptions options) { return usage_error_of([&] { PowerSgd hook(options); }); };
  EXPECT_TRUE(says(error_of({.matrix_approximation_rank = 0}), "matrix_approximation_rank must be at least 1"));
  EXPECT_TRUE(says(error_of({.start_powerSGD_iter = 1}), "start_powerSGD_iter must be at least 2"));
  EXPECT_TRUE(says(error_of({.min_compression_rate = 0}), "min_compression_rate must be above 0"));
  EXPECT_TRUE(says(error_of({.orthogonalization_epsilon = -1}), "orthogonalization_epsilon"));
}

}  // namespace
}  // namespace retinue
