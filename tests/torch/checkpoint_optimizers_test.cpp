// Optimizers in a Checkpoint: LibTorch's, those with save() of their own, and those whose state is divided over ranks.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "retinue/base/error.h"
#include "support/ranks.h"
#include "support/says.h"
#include "torch/checkpoint_scene.h"

namespace retinue {
namespace {

namespace optim = torch::optim;
using test::error_of;
using test::expect_same_future;
using test::expect_same_module;
using test::Folder;
using test::group_of;
using test::make_adamw;
using test::MakeOptimizer;
using test::maker_of;
using test::run_ranks;
using test::says;
using test::Trained;
using Parameters = std::vector<at::Tensor>;

/// With all options at other values than the default.
MakeOptimizer make_named(const std::string& name) {
  if (name == "SGD")
    return maker_of<optim::SGD>(optim::SGDOptions(0.05).momentum(0.8).dampening(0.1).weight_decay(0.2));
  if (name == "Adam")
    return maker_of<optim::Adam>(optim::AdamOptions(0.02).betas({0.7, 0.9}).eps(1e-3).weight_decay(0.2).amsgrad(true));
  if (name == "AdamW")
    return maker_of<optim::AdamW>(
        optim::AdamWOptions(0.02).betas({0.7, 0.9}).eps(1e-3).weight_decay(0.2).amsgrad(true));
  if (name == "RMSprop")
    return maker_of<optim::RMSprop>(
        optim::RMSpropOptions(0.02).alpha(0.9).eps(1e-3).weight_decay(0.2).momentum(0.5).centered(true));
  return maker_of<optim::Adagrad>(
      optim::AdagradOptions(0.02).lr_decay(0.1).weight_decay(0.2).initial_accumulator_value(0.3).eps(1e-3));
}

/// The same class with its default options, which loading replaces.
MakeOptimizer make_default(const std::string& name) {
  if (name == "SGD") return maker_of<optim::SGD>(optim::SGDOptions(1));
  if (name == "Adam") return maker_of<optim::Adam>(optim::AdamOptions());
  if (name == "AdamW") return maker_of<optim::AdamW>(optim::AdamWOptions());
  if (name == "RMSprop") return maker_of<optim::RMSprop>(optim::RMSpropOptions());
  return maker_of<optim::Adagrad>(optim::AdagradOptions());
}

class CheckpointOfOptimizer : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Classes, CheckpointOfOptimizer, testing::Values("SGD", "Adam", "AdamW", "RMSprop", "Adagrad"));

TEST_P(CheckpointOfOptimizer, ContinuesWithItsOptionsAndState) {
  const Folder folder;
  run_ranks(2, [&](const JobGroup& members) {
    Checkpoint checkpoint(folder.path(), group_of(members));
    Trained trained(1, make_named(GetParam()), 3);
    checkpoint.save(3, trained.state());
    for (const int steps : {0, 2}) {
      Trained loaded(2, make_default(GetParam()), steps);
      checkpoint.load(3, loaded.state());
      Trained expected(1, make_named(GetParam()), 3);
      expect_same_future(expected, loaded);
    }
  });
}

TEST(CheckpointOptimizers, GroupsAndParametersWithoutState) {
  const Folder folder;
  // Two groups, and parameters that never got a gradient.
  const MakeOptimizer make = [](Parameters parameters) {
    std::vector<optim::OptimizerParamGroup> groups;
    groups.emplace_back(Parameters(parameters.begin(), parameters.begin() + 4));
    groups.emplace_back(Parameters(parameters.begin() + 4, parameters.end()),
                        std::make_unique<optim::AdamOptions>(optim::AdamOptions(0.5)));
    auto optimizer = std::make_unique<optim::Adam>(std::move(groups), optim::AdamOptions(0.01));
    optimizer->add_param_group(optim::OptimizerParamGroup({torch::ones({3, 4}), torch::ones({7})}));
    return optimizer;
  };
  run_ranks(2, [&](const JobGroup& members) {
    Checkpoint checkpoint(folder.path(), group_of(members));
    Trained trained(1, make, 2);
    trained.optimizer->param_groups()[1].options().set_lr(0.25);
    checkpoint.save(1, trained.state());
    Trained loaded(2, make, 1);
    auto& without_state = loaded.optimizer->param_groups()[2].params()[1];
    loaded.optimizer->state()[without_state.unsafeGetTensorImpl()] = std::make_unique<optim::AdamParamState>();
    checkpoint.load(1, loaded.state());
    EXPECT_EQ(loaded.optimizer->param_groups()[1].options().get_lr(), 0.25);
    EXPECT_FALSE(loaded.optimizer->state().count(without_state.unsafeGetTensorImpl()) > 0);
    expect_same_future(trained, loaded);
  });
}

/// An optimizer of a user's, without save().
struct Stubborn : optim::Optimizer {
  explicit Stubborn(Parameters parameters) : Optimizer(std::move(parameters), std::make_unique<optim::SGDOptions>(1)) {}
  at::Tensor step(LossClosure) override { return {}; }
};
/// One that has more state than its base.
struct Warming : optim::SGD {
  using SGD::SGD;
  void save(torch::serialize::OutputArchive& archive) const override {
    SGD::save(archive);
    archive.write("warmth", torch::tensor(warmth));
  }
  void load(torch::serialize::InputArchive& archive) override {
    SGD::load(archive);
    at::Tensor read = torch::empty({});
    archive.read("warmth", read);
    warmth = read.item<float>();
  }
  float warmth = 0;
};

/// Its save() fails, as LBFGS's does after a few steps.
struct Failing : Stubborn {
  using Stubborn::Stubborn;
  void save(torch::serialize::OutputArchive&) const override { throw std::runtime_error("not today"); }
};

TEST(CheckpointOptimizers, ClassesOfUsers) {
  const Folder folder;
  run_ranks(2, [&](const JobGroup& members) {
    Checkpoint checkpoint(folder.path(), group_of(members));
    torch::nn::Linear net(3, 2);
    Stubborn stubborn(net->parameters());
    const std::string text = error_of([&] { checkpoint.save(1, {.model = net, .optimizer = stubborn}); });
    EXPECT_TRUE(says(text,
                     "Stubborn can't be saved: it is none of SGD, Adam, AdamW, RMSprop and Adagrad, and has no "
                     "save() and load() of its own"))
        << text;
    Failing failing(net->parameters());
    EXPECT_TRUE(says(error_of([&] { checkpoint.save(1, {.optimizer = failing}); }),
                     "Failing's save() failed: std::runtime_error: not today"));
    Warming warming(net->parameters(), optim::SGDOptions(0.1));
    warming.warmth = 5;
    checkpoint.save(1, {.model = net, .optimizer = warming});
    Warming loaded(net->parameters(), optim::SGDOptions(0.1));
    checkpoint.load(1, {.optimizer = loaded});
    EXPECT_EQ(loaded.warmth, 5);
    optim::SGD plain(net->parameters(), optim::SGDOptions(0.1));
    EXPECT_TRUE(
        says(error_of([&] { checkpoint.load(1, {.optimizer = plain}); }), "but the optimizer is of the class SGD"));
  });
}

/// AdamW whose state is divided: each rank has a part of each parameter's.
class Sharded : public optim::Optimizer, public ShardedState {
 public:
  Sharded(const Parameters& parameters, int ranks, int rank, double lr)
      : Optimizer(parameters, std::make_unique<optim::AdamWOptions>(lr)),
        local_(Parameters(), optim::AdamWOptions(lr)) {
    Parameters parts;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const std::int64_t count = parameters[i].numel();
      const ParameterSlice slice{.parameter = i, .begin = count * rank / ranks, .end = count * (rank + 1) / ranks};
      if (slice.begin == slice.end) continue;
      slices_.push_back(slice);
      parts.push_back(parameters[i].detach().view({-1}).slice(0, slice.begin, slice.end));
    }
    local_.param_groups().front().params() = parts;
  }

  at::Tensor step(LossClosure = nullptr) override {
    for (std::size_t i = 0; i < slices_.size(); ++i)
      local_.param_groups().front().params()[i].mutable_grad() =
          param_groups().front().params()[slices_[i].parameter].grad().reshape({-1}).slice(0, slices_[i].begin,
                                                                                           slices_[i].end);
    return local_.step();
  }
  optim::Optimizer& local_optimizer() override { return local_; }
  std::vector<ParameterSlice> slices() const override { return slices_; }

  std::vector<ParameterSlice> slices_;

 private:
  optim::AdamW local_;
};

/// A net of contiguous parameters, and one step of it on all ranks.
struct ShardedNet {
  ShardedNet(std::uint64_t seed, const ProcessGroup& group, double lr) : net(nullptr), group_(group) {
    torch::manual_seed(seed);
    net = torch::nn::Sequential(torch::nn::Linear(13, 31), torch::nn::Tanh(), torch::nn::Linear(31, 1));
    optimizer = std::make_unique<Sharded>(net->parameters(), group->getSize(), group->getRank(), lr);
  }
  void train() {
    backward(*net);
    optimizer->step();
    for (const at::Tensor& parameter : net->parameters()) gather(parameter);
  }
  static void backward(torch::nn::SequentialImpl& net) {
    net.zero_grad();
    net.forward(torch::ones({4, 13})).square().sum().backward();
  }
  /// Each rank has stepped its slice.
  void gather(const at::Tensor& parameter) const {
    const at::NoGradGuard no_grad;
    const at::Tensor flat = parameter.detach().view({-1});
    for (int rank = 0; rank < group_->getSize(); ++rank) {
      const std::int64_t begin = flat.numel() * rank / group_->getSize();
      const std::int64_t end = flat.numel() * (rank + 1) / group_->getSize();
      if (begin < end) broadcast(flat.slice(0, begin, end), group_, {.src = rank});
    }
  }

  torch::nn::Sequential net;
  std::unique_ptr<Sharded> optimizer;

 private:
  ProcessGroup group_;
};

TEST(CheckpointOptimizers, DividedStateIsSavedAsAWhole) {
  const Folder folder;
  run_ranks(2, [&](const JobGroup& members) {
    const ProcessGroup group = group_of(members);
    ShardedNet trained(1, group, 0.01);
    for (int step = 0; step < 3; ++step) trained.train();
    Checkpoint checkpoint(folder.path(), group, {.async = true});
    checkpoint.save(3, {.model = trained.net, .optimizer = *trained.optimizer});
    checkpoint.wait();
    trained.train();
    checkpoint.save(4, {.model = trained.net, .optimizer = *trained.optimizer});
  });
  for (const int ranks : {1, 2, 3})  // With another division, and without.
    run_ranks(ranks, [&](const JobGroup& members) {
      const ProcessGroup group = group_of(members);
      Checkpoint checkpoint(folder.path(), group);
      ShardedNet expected(5, group, 0.5);
      checkpoint.load(4, {.model = expected.net});
      ShardedNet loaded(6, group, 0.5);
      checkpoint.load(3, {.model = loaded.net, .optimizer = *loaded.optimizer});
      loaded.train();
      expect_same_module(*expected.net, *loaded.net);
      torch::nn::Sequential whole(torch::nn::Linear(13, 31), torch::nn::Tanh(), torch::nn::Linear(31, 1));
      optim::AdamW optimizer(whole->parameters(), optim::AdamWOptions(0.5));
      checkpoint.load(3, {.model = whole, .optimizer = optimizer});
      ShardedNet::backward(*whole);
      optimizer.step();
      expect_same_module(*expected.net, *whole);
    });
}

TEST(CheckpointOptimizers, WhatWasSavedAsAWholeCanBeDivided) {
  const Folder folder;
  run_ranks(2, [&](const JobGroup& members) {
    const ProcessGroup group = group_of(members);
    torch::manual_seed(1);
    torch::nn::Sequential whole(torch::nn::Linear(13, 31), torch::nn::Tanh(), torch::nn::Linear(31, 1));
    optim::AdamW optimizer(whole->parameters(), optim::AdamWOptions(0.01));
    Checkpoint checkpoint(folder.path(), group);
    ShardedNet::backward(*whole);
    optimizer.step();
    checkpoint.save(1, {.model = whole, .optimizer = optimizer});
    ShardedNet loaded(6, group, 0.5);
    checkpoint.load(1, {.model = loaded.net, .optimizer = *loaded.optimizer});
    loaded.train();
    ShardedNet::backward(*whole);
    optimizer.step();
    expect_same_module(*whole, *loaded.net);
  });
}

TEST(CheckpointOptimizers, SlicesThatAreNoDivisionAreNamed) {
  const Folder folder;
  run_ranks(2, [&](const JobGroup& members) {
    const ProcessGroup group = group_of(members);
    ShardedNet trained(1, group, 0.01);
    trained.train();
    Checkpoint checkpoint(folder.path(), group);
    const auto problem = [&] {
      return error_of([&] { checkpoint.save(1, {.model = trained.net, .optimizer = *trained.optimizer}); });
    };
    if (members.rank == 1)
      for (ParameterSlice& slice : trained.optimizer->slices_)
        if (slice.parameter == 0) slice = {.parameter = 0, .begin = slice.begin - 1, .end = slice.end - 1};
    EXPECT_EQ(problem(),
              "Checkpoint: cannot save step 1: rank 0: the ranks' slices of "
              "optimizer[\"state\"][0][\"exp_avg\"] overlap at element 200");
    if (members.rank == 1)
      for (ParameterSlice& slice : trained.optimizer->slices_)
        if (slice.parameter == 0) slice = {.parameter = 0, .begin = slice.begin + 2, .end = slice.end + 2};
    EXPECT_TRUE(says(problem(), "[\"exp_avg\"] lack element 201"));
  });
}

}  // namespace
}  // namespace retinue
