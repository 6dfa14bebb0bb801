// Which backward passes DistributedDataParallel averages, which it refuses, and what becomes of gradients that are
// kept.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "torch/trained_net.h"

namespace retinue {
namespace {

namespace nn = torch::nn;
using test::joined_batch;
using test::kBatch;
using test::make_mlp;
using test::part_of;
using test::run_training;
using test::says;
using test::seeded;
using test::usage_error_of;

class DataParallelPasses : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, DataParallelPasses, testing::Values("shm", "gloo"));

using Forward = std::function<at::Tensor(nn::Sequential&, const at::Tensor&)>;
using Pass = std::function<void(const Forward&, nn::Sequential&, int rank)>;

/// Makes `pass` three times on a wrapped net, by forwards of the wrapper and then of the net itself, and compares the
/// gradients with the mean of those of all ranks' passes made alone.
void expect_averaged(const ProcessGroup& group, const Pass& pass) {
  nn::Sequential net = seeded(3, [] { return make_mlp(); });
  nn::Sequential alone = seeded(3, [] { return make_mlp(); });
  DistributedDataParallel ddp(net, group);
  const Forward by_module = [](nn::Sequential& module, const at::Tensor& input) { return module->forward(input); };
  const Forward by_arrow = [&](nn::Sequential&, const at::Tensor& input) { return ddp->forward(input); };
  const Forward by_wrapper = [&](nn::Sequential&, const at::Tensor& input) { return ddp(input); };
  for (const Forward& forward : {by_wrapper, by_arrow, by_wrapper}) {
    ddp->zero_grad();
    alone->zero_grad();
    pass(forward, net, group->getRank());
    for (int rank = 0; rank < group->getSize(); ++rank) pass(by_module, alone, rank);
    const auto trained = ddp->parameters();
    const auto expected = alone->parameters();
    for (std::size_t i = 0; i < trained.size(); ++i)
      EXPECT_TRUE(torch::allclose(trained[i].grad(), expected[i].grad() / group->getSize(), 1e-4, 1e-5))
          << "parameter " << i;
  }
}

TEST_P(DataParallelPasses, AreAveragedWhicheverForwardTheyFollow) {
  for (const int ranks : {1, 2, 3})
    run_training(ranks, GetParam(), [](const ProcessGroup& group) {
      expect_averaged(group, [&](const Forward& forward, nn::Sequential& net, int rank) {
        forward(net, part_of(0, group, rank)).sum().backward();
      });
    });
}

TEST_P(DataParallelPasses, MayComeAfterSeveralForwards) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    expect_averaged(group, [&](const Forward& forward, nn::Sequential& net, int rank) {
      const at::Tensor first = forward(net, part_of(0, group, rank)).sum();
      const at::Tensor second = forward(net, part_of(1, group, rank)).square().sum();
      first.backward();
      second.backward();
    });
  });
}

TEST_P(DataParallelPasses, MayGoThroughARetainedGraphAgain) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    expect_averaged(group, [&](const Forward& forward, nn::Sequential& net, int rank) {
      const at::Tensor output = forward(net, part_of(0, group, rank));
      output.sum().backward({}, /*retain_graph=*/true);
      output.square().sum().backward();
    });
  });
}

TEST_P(DataParallelPasses, OfBatchNormMayGoThroughARetainedGraphAgain) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    nn::Sequential net =
        seeded(1, [] { return nn::Sequential(nn::Linear(6, 4), nn::BatchNorm1d(4), nn::Linear(4, 1)); });
    DistributedDataParallel ddp(net, group);
    const at::Tensor output = ddp(part_of(0, group, group->getRank())).square().sum();  // A sum's gradients are zeros.
    output.backward({}, /*retain_graph=*/true);
    std::vector<at::Tensor> once;
    for (const at::Tensor& parameter : net->parameters()) once.push_back(parameter.grad().clone());
    output.backward();
    for (std::size_t i = 0; i < once.size(); ++i)
      EXPECT_TRUE(torch::allclose(net->parameters()[i].grad(), 2 * once[i], 1e-4, 1e-5)) << "parameter " << i;
    EXPECT_GT(once.back().abs().sum().item<float>(), 0.1f);
  });
}

TEST_P(DataParallelPasses, OfOneRankAloneAreRefusedOutsideOfNoSync) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    DistributedDataParallel ddp(make_mlp(), group);
    const at::Tensor input = part_of(0, group, group->getRank());
    if (group->getRank() == 1) {
      const auto alone = ddp.no_sync();
      ddp->forward(input).sum().backward();
    }
    const at::Tensor loss = (group->getRank() == 1 ? ddp->forward(input) : ddp(input)).sum();
    const std::string text = usage_error_of([&] { loss.backward(); });
    EXPECT_TRUE(says(text, "on rank 1: this rank made no forward of DistributedDataParallel since its last")) << text;
    EXPECT_NO_THROW(ddp(input).sum().backward());
  });
}

TEST_P(DataParallelPasses, ThatRanksMakeInAnotherOrderWithForwardsAreRefused) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    DistributedDataParallel ddp(make_mlp(), group);
    const auto loss_of = [&](int step) { return ddp(part_of(step, group, group->getRank())).sum(); };
    at::Tensor first = loss_of(0);
    at::Tensor second = group->getRank() == 0 ? loss_of(1) : at::Tensor();
    const std::string text = usage_error_of([&] { first.backward(); });
    EXPECT_TRUE(says(text, "on rank 0: this rank made 2 forwards of DistributedDataParallel")) << text;
    EXPECT_TRUE(says(text, "but another rank made 1;")) << text;
    if (group->getRank() == 1) second = loss_of(1);
    const std::string other = usage_error_of([&] { second.backward(); });
    EXPECT_TRUE(says(other, "on rank 0: this rank made no forward of DistributedDataParallel since its last")) << other;
    EXPECT_TRUE(says(other, "all with model(x) or all with model->forward(x)")) << other;
    EXPECT_NO_THROW(loss_of(2).backward());
  });
}

TEST_P(DataParallelPasses, ThatARankSkippedAreNamed) {
  run_training(3, GetParam(), [](const ProcessGroup& group) {
    DistributedDataParallel ddp(make_mlp(), group);
    const auto loss_of = [&](int step) { return ddp(part_of(step, group, group->getRank())).sum(); };
    loss_of(0).backward();
    at::Tensor loss = loss_of(1);
    if (group->getRank() == 1) loss = loss_of(2);  // It never uses the first.
    const std::string text = usage_error_of([&] { loss.backward(); });
    EXPECT_TRUE(says(text, "on rank 1: this rank made 2 forwards of DistributedDataParallel")) << text;
    EXPECT_TRUE(says(text, "if this rank skipped a backward, make it on all ranks")) << text;
  });
}

TEST_P(DataParallelPasses, DoNotMissForwardsThatNeedNone) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    nn::Sequential net(nn::Linear(6, 4), nn::Dropout(), nn::Linear(4, 3));
    DistributedDataParallel ddp(net, group);
    const at::Tensor input = part_of(0, group, group->getRank());
    if (group->getRank() == 1) {
      EXPECT_THROW(ddp(torch::zeros({2, 5})), c10::Error) << "and it tries again";
      {
        const torch::NoGradGuard no_grad;
        ddp(input);
      }
      {
        const auto alone = ddp.no_sync();
        ddp(input);
      }
      ddp->eval();
      ddp(input);
      ddp->train();
    }
    EXPECT_NO_THROW(ddp(input).sum().backward());
  });
}

struct TwoHeadsImpl : nn::Module {
  TwoHeadsImpl()
      : body(register_module("body", nn::Linear(6, 8))),
        first(register_module("first", nn::Linear(8, 3))),
        second(register_module("second", nn::Linear(8, 3))) {}

  at::Tensor forward(const at::Tensor& input, bool uses_second) {
    const at::Tensor hidden = torch::tanh(body(input));
    return uses_second ? first(hidden) + second(hidden) : first(hidden);
  }

  nn::Linear body, first, second;
};
TORCH_MODULE(TwoHeads);

TEST_P(DataParallelPasses, WithoutAGradientOfAParameterAreRefusedOnAllRanks) {
  for (const int ranks : {1, 2, 3})
    run_training(ranks, GetParam(), [](const ProcessGroup& group) {
      DistributedDataParallel ddp(TwoHeads(), group);
      const at::Tensor input = part_of(0, group, group->getRank());
      const int last = group->getSize() - 1;
      for (int step = 0; step < 3; ++step) {
        ddp(input, true).sum().backward();
        const at::Tensor loss = ddp(input, group->getRank() != last).sum();
        const std::string text = usage_error_of([&] { loss.backward(); });
        const std::string expected =
            "on rank " + std::to_string(last) + ": parameter \"second.weight\" (and 1 more) got no gradient";
        EXPECT_TRUE(says(text, expected)) << text;
        EXPECT_TRUE(says(text, "find_unused_parameters")) << text;
      }
    });
}

TEST_P(DataParallelPasses, ThatReturnGradientsOfParametersAreRefused) {
  for (const int ranks : {1, 2})
    run_training(ranks, GetParam(), [](const ProcessGroup& group) {
      DistributedDataParallel ddp(make_mlp(), group);
      const at::Tensor input = part_of(0, group, group->getRank()).requires_grad_();
      const auto grad_of = [&](const std::vector<at::Tensor>& inputs) {
        return torch::autograd::grad({ddp(input).sum()}, inputs);
      };
      const std::string text = usage_error_of([&] { grad_of(ddp->parameters()); });
      EXPECT_TRUE(says(text, "grad() computes the gradient of parameter \"")) << text;
      EXPECT_TRUE(grad_of({input})[0].defined()) << "a gradient of the input is no parameter's";
      const auto alone = ddp.no_sync();
      EXPECT_EQ(grad_of(ddp->parameters()).size(), ddp->parameters().size());
    });
}

TEST_P(DataParallelPasses, WithGradientsThatHaveAGraphAreRefusedOnAllRanks) {
  for (const int ranks : {1, 2})
    run_training(ranks, GetParam(), [](const ProcessGroup& group) {
      DistributedDataParallel ddp(make_mlp(), group);
      const at::Tensor loss = ddp(part_of(0, group, group->getRank())).square().sum();
      const std::string text = usage_error_of([&] { loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true); });
      EXPECT_TRUE(says(text, "has its own graph (create_graph)")) << text;
      ddp->zero_grad();
      const auto alone = ddp.no_sync();
      ddp(part_of(0, group, group->getRank())).square().sum().backward({}, true, /*create_graph=*/true);
      EXPECT_TRUE(ddp->parameters()[0].grad().requires_grad());
    });
}

/// Its gradient is undefined on rank 0, as of a function that has none for an input.
struct WithoutGradientOnRank0 : torch::autograd::Function<WithoutGradientOnRank0> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& input) { return input.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list&) {
    return {at::Tensor()};
  }
};

TEST_P(DataParallelPasses, LeaveAloneWhatGotNoGradientOnAnyRank) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    nn::Linear net(3, 2);
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    const at::Tensor input = torch::ones({4, 3});
    at::Tensor loss = torch::linear(input, net->weight).sum();
    if (group->getRank() == 0) loss = loss + WithoutGradientOnRank0::apply(net->bias).sum();
    loss.backward();
    EXPECT_TRUE(net->weight.grad().defined());
    EXPECT_FALSE(net->bias.grad().defined()) << "rank " << group->getRank();
  });
}

/// What a program keeps of a training's gradients: the tensors themselves, and parts of them.
std::vector<at::Tensor> kept_gradients(nn::Sequential& net, bool set_to_none,
                                       const std::function<at::Tensor(int step)>& loss_of) {
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  std::vector<at::Tensor> kept;
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad(set_to_none);
    loss_of(step).backward();
    if (step == 3) loss_of(step + 1).backward();  // Adds to gradients that are kept.
    const auto parameters = net->parameters();
    kept.push_back(parameters[0].grad());
    kept.push_back(parameters[2].grad().narrow(0, 1, 2));
    kept.push_back(parameters[5].grad().detach());
    optimizer.step();
    if (step == 2) kept.erase(kept.begin(), kept.begin() + 3);
  }
  return kept;
}

TEST_P(DataParallelPasses, LeaveKeptGradientsAsTheyWere) {
  for (const int ranks : {1, 2, 3})
    for (const bool set_to_none : {true, false})
      run_training(ranks, GetParam(), [=](const ProcessGroup& group) {
        nn::Sequential net = seeded(4, [] { return make_mlp(); });
        nn::Sequential serial = seeded(4, [] { return make_mlp(); });
        DistributedDataParallel ddp(net, group);
        const std::int64_t begin = kBatch * group->getRank();
        const auto kept = kept_gradients(net, set_to_none, [&](int step) {
          const auto [inputs, labels] = joined_batch(step, ranks, {6});
          return nn::functional::cross_entropy(ddp(inputs.narrow(0, begin, kBatch)), labels.narrow(0, begin, kBatch));
        });
        const auto expected = kept_gradients(serial, set_to_none, [&](int step) {
          const auto [inputs, labels] = joined_batch(step, ranks, {6});
          return nn::functional::cross_entropy(serial->forward(inputs), labels);
        });
        ASSERT_EQ(kept.size(), expected.size());
        for (std::size_t i = 0; i < kept.size(); ++i)
          EXPECT_TRUE(torch::allclose(kept[i], expected[i], 1e-4, 1e-6)) << "tensor " << i;
      });
}

}  // namespace
}  // namespace retinue
