#include "retinue/torch/pipeline_parallel.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <string>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/torch/state_dict.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "torch/pipelined_net.h"
#include "torch/trained_net.h"

namespace retinue {
namespace {

namespace nn = torch::nn;
using test::Batch;
using test::expect_same_gradients;
using test::make_batch;
using test::make_model;
using test::mean_loss;
using test::own_part;
using test::says;
using test::squared_loss;
using test::usage_error_of;

class Pipeline : public test::OnRanks {};
INSTANTIATE_TEST_SUITE_P(Backends, Pipeline, Pipeline::values(), Pipeline::name_of);

TEST_P(Pipeline, HasTheGradientsOfTheWholeModel) {
  on_ranks([](const ProcessGroup& group) {
    for (const int micros : {1, 2, 5}) {
      nn::Sequential whole = make_model();
      nn::Sequential part = own_part(make_model(), group);
      Schedule1F1B schedule({part, group}, {.n_microbatches = micros, .loss_fn = mean_loss});
      torch::optim::SGD optimizer(part->parameters(), 0.5);
      torch::optim::SGD optimizer_whole(whole->parameters(), 0.5);
      for (int step = 0; step < 3; ++step) {
        const Batch batch = make_batch(step, 8);  // 5 micro-batches don't divide it.
        optimizer.zero_grad();
        optimizer_whole.zero_grad();
        const at::Tensor expected = whole->forward(batch.input);
        mean_loss(expected, batch.target).backward();
        std::vector<at::Tensor> losses;
        const at::Tensor output = schedule.step({.input = batch.input, .target = batch.target, .losses = &losses});
        expect_same_gradients(part, whole, "step " + std::to_string(step));
        EXPECT_EQ(output.defined(), schedule.stage().is_last());
        EXPECT_EQ(losses.size(), schedule.stage().is_last() ? static_cast<std::size_t>(micros) : 0);
        if (output.defined()) {
          EXPECT_TRUE(torch::allclose(output, expected.detach(), 1e-4, 1e-6));
        }
        optimizer.step();
        optimizer_whole.step();
      }
    }
  });
}

TEST_P(Pipeline, AddsGradientsOfSums) {
  on_ranks([](const ProcessGroup& group) {
    const auto sum_loss = [](const at::Tensor& output, const at::Tensor& target) {
      return torch::cross_entropy_loss(output, target, {}, at::Reduction::Sum);
    };
    nn::Sequential whole = make_model();
    nn::Sequential part = own_part(make_model(), group);
    Schedule1F1B schedule({part, group}, {.n_microbatches = 3, .loss_fn = sum_loss, .scale_grads = false});
    for (int step = 0; step < 2; ++step) {  // Without zero_grad().
      const Batch batch = make_batch(step, 6);
      sum_loss(whole->forward(batch.input), batch.target).backward();
      schedule.step({.input = batch.input, .target = batch.target});
    }
    expect_same_gradients(part, whole, "two steps");
  });
}

TEST_P(Pipeline, LeavesFrozenStagesAlone) {
  on_ranks([](const ProcessGroup& group) {
    nn::Sequential whole = make_model();
    nn::Sequential part = own_part(make_model(), group);
    const auto freeze = [](nn::Sequential& net) {
      for (auto& item : net->named_parameters())
        if (item.key()[0] < '5') item.value().set_requires_grad(false);
    };
    freeze(whole);
    freeze(part);
    Schedule1F1B schedule({part, group}, {.n_microbatches = 2, .loss_fn = mean_loss});
    const Batch batch = make_batch(0, 4);
    mean_loss(whole->forward(batch.input), batch.target).backward();
    schedule.step({.input = batch.input, .target = batch.target});
    for (const auto& item : part->named_parameters()) {
      EXPECT_EQ(item.value().grad().defined(), item.value().requires_grad()) << item.key();
      if (item.value().requires_grad()) {
        EXPECT_TRUE(torch::allclose(item.value().grad(), whole->named_parameters()[item.key()].grad(), 1e-4, 1e-6));
      }
    }
  });
}

TEST_P(Pipeline, EvaluatesWithoutGradients) {
  on_ranks([](const ProcessGroup& group) {
    nn::Sequential part = own_part(make_model(), group);
    Schedule1F1B schedule({part, group}, {.n_microbatches = 3, .loss_fn = mean_loss});
    const Batch batch = make_batch(0, 7);
    const at::Tensor expected = make_model()->forward(batch.input).detach();
    std::vector<at::Tensor> losses;
    for (const bool has_target : {true, false}) {
      const at::Tensor output =
          schedule.eval({.input = batch.input, .target = has_target ? batch.target : at::Tensor(), .losses = &losses});
      if (schedule.stage().is_last()) {
        EXPECT_TRUE(torch::allclose(output, expected, 1e-4, 1e-6));
        EXPECT_EQ(losses.size(), has_target ? 3u : 0u);
      }
    }
    for (const at::Tensor& parameter : part->parameters()) EXPECT_FALSE(parameter.grad().defined());
  });
}

/// Counts micro-batches between their forward and their backward.
struct CountsPassagesImpl : nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = layer(x);
    if (!y.requires_grad()) return y;
    most = std::max(most, ++now);
    y.register_hook([this](const at::Tensor&) { --now; });
    return y;
  }
  nn::Linear layer = register_module("layer", nn::Linear(2, 2));
  int now = 0;
  int most = 0;
};
TORCH_MODULE(CountsPassages);

TEST_P(Pipeline, KeepsFewActivations) {
  on_ranks([](const ProcessGroup& group) {
    CountsPassages counts;
    Schedule1F1B schedule({nn::Sequential(counts), group}, {.n_microbatches = 7, .loss_fn = squared_loss});
    schedule.step({.input = torch::ones({7, 2}), .target = torch::ones({7, 2})});
    EXPECT_EQ(counts->most, group->getSize() - group->getRank());
    EXPECT_EQ(counts->now, 0);
  });
}

TEST(SplitSequential, KeepsNamesAndModules) {
  nn::Sequential model = make_model();
  const auto parts = split_sequential(model, {2, 5});
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(state_dict(*parts[0]).keys(), (std::vector<std::string>{"0.weight"}));
  EXPECT_EQ(state_dict(*parts[1]).keys(), (std::vector<std::string>{"2.weight", "2.bias", "4.weight", "4.bias"}));
  EXPECT_EQ(state_dict(*parts[2]).keys(), (std::vector<std::string>{"6.weight", "6.bias"}));
  EXPECT_TRUE(parts[2]->parameters()[0].is_same(model->parameters()[5]));
  EXPECT_EQ(split_sequential(model, std::vector<std::size_t>{}).front()->size(), model->size());
  for (const std::vector<std::size_t>& points : {std::vector<std::size_t>{0}, {7}, {3, 3}, {4, 2}})
    EXPECT_TRUE(says(usage_error_of([&] { split_sequential(model, points); }), "they must ascend"));
}

TEST(SplitSequential, DividesParameters) {
  nn::Sequential model;
  for (const int size : {40, 10, 10, 10, 10, 40}) model->push_back(nn::Linear(nn::LinearOptions(size, 1).bias(false)));
  const auto sizes_of = [&](int stages) {
    std::vector<std::size_t> sizes;
    for (const nn::Sequential& part : split_by_parameters(model, stages)) sizes.push_back(part->size());
    return sizes;
  };
  EXPECT_EQ(sizes_of(1), (std::vector<std::size_t>{6}));
  EXPECT_EQ(sizes_of(2), (std::vector<std::size_t>{3, 3}));
  EXPECT_EQ(sizes_of(3), (std::vector<std::size_t>{1, 4, 1}));
  EXPECT_EQ(sizes_of(6), (std::vector<std::size_t>{1, 1, 1, 1, 1, 1}));
  EXPECT_TRUE(
      says(usage_error_of([&] { split_by_parameters(model, 7); }), "a model of 6 modules can't be divided into 7"));
  EXPECT_THROW(split_by_parameters(model, 0), UsageError);
  const nn::Sequential without{nn::ReLU(), nn::ReLU(), nn::ReLU()};  // Without parameters.
  EXPECT_EQ(split_by_parameters(without, 3).size(), 3u);
}

}  // namespace
}  // namespace retinue
