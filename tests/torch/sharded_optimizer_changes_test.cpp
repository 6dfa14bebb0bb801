// What a program does to a ShardedOptimizer and its parameters between steps.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "launch/log_files.h"
#include "retinue/torch/checkpoint.h"
#include "retinue/torch/sharded_optimizer.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "torch/trained_net.h"

namespace retinue {
namespace {

namespace optim = torch::optim;
using test::make_mlp;
using test::part_of;
using test::run_training;
using test::says;
using test::seeded;
using test::usage_error_of;

using ChangedModel = DistributedDataParallel<torch::nn::Sequential>;

ChangedModel make_changed_model(const ProcessGroup& group, bool is_shared = false) {
  return {seeded(4, [] { return make_mlp(); }), group, {.share_parameters = is_shared}};
}

at::Tensor changed_loss(ChangedModel& model, const ProcessGroup& group, int step) {
  return model(part_of(step, group, group->getRank())).square().mean();
}

/// Makes a step, and returns copies of the parameters.
std::vector<at::Tensor> parameters_after(ChangedModel& model, optim::Optimizer& optimizer, const ProcessGroup& group,
                                         int step) {
  optimizer.zero_grad();
  changed_loss(model, group, step).backward();
  optimizer.step();
  std::vector<at::Tensor> copies;
  for (const at::Tensor& parameter : model.parameters()) copies.push_back(parameter.detach().clone());
  return copies;
}

void expect_equal_lists(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others) {
  ASSERT_EQ(some.size(), others.size());
  for (std::size_t i = 0; i < some.size(); ++i) EXPECT_TRUE(some[i].equal(others[i])) << "parameter " << i;
}

/// A checkpoint has the optimizer's state in its hands, too. The state that was given last counts.
TEST(ShardedOptimizerChanges, StateIsWhatWasLoadedLast) {
  const test::Folder folder;
  run_training(2, "shm", [&](const ProcessGroup& group) {
    ChangedModel ddp = make_changed_model(group);
    ShardedOptimizer<optim::Adam> optimizer(ddp, optim::AdamOptions(0.1));
    Checkpoint checkpoint(folder.path(), group);
    parameters_after(ddp, optimizer, group, 0);
    std::stringstream archive;
    torch::save(optimizer, archive);
    checkpoint.save(1, {.model = ddp, .optimizer = optimizer});
    const std::vector<at::Tensor> wanted = parameters_after(ddp, optimizer, group, 1);

    parameters_after(ddp, optimizer, group, 2);
    checkpoint.save(2, {.model = ddp, .optimizer = optimizer});
    checkpoint.load(1, {.model = ddp});
    torch::load(optimizer, archive);
    expect_equal_lists(parameters_after(ddp, optimizer, group, 1), wanted);

    parameters_after(ddp, optimizer, group, 2);
    checkpoint.load(1, {.model = ddp, .optimizer = optimizer});
    std::stringstream of_loaded;
    torch::save(optimizer, of_loaded);
    ShardedOptimizer<optim::Adam> other(ddp, optim::AdamOptions(0.1));
    torch::load(other, of_loaded);
    expect_equal_lists(parameters_after(ddp, other, group, 1), wanted);
  });
}

/// Only an optimizer writes shared parameters, but a checkpoint gives all ranks the same values.
TEST(ShardedOptimizerChanges, SharedParametersMayBeLoadedWhenTrainingHasBegun) {
  const test::Folder folder;
  run_training(2, "shm", [&](const ProcessGroup& group) {
    ChangedModel ddp = make_changed_model(group, /*is_shared=*/true);
    ShardedOptimizer<optim::AdamW> optimizer(ddp, optim::AdamWOptions(0.1));
    Checkpoint checkpoint(folder.path(), group);
    parameters_after(ddp, optimizer, group, 0);
    checkpoint.save(1, {.model = ddp, .optimizer = optimizer});
    const std::vector<at::Tensor> wanted = parameters_after(ddp, optimizer, group, 1);
    parameters_after(ddp, optimizer, group, 2);
    checkpoint.load(1, {.model = ddp, .optimizer = optimizer});
    expect_equal_lists(parameters_after(ddp, optimizer, group, 1), wanted);
    checkpoint.load(1, {.model = ddp, .optimizer = optimizer});
    barrier(group);
    {
      const torch::NoGradGuard no_grad;
      ddp.parameters()[0].mul_(2);  // Is still no load.
    }
    barrier(group);
    const at::Tensor loss = changed_loss(ddp, group, 1);
    EXPECT_TRUE(says(usage_error_of([&] { loss.backward(); }), "was written by the program"));
  });
}

/// As with LibTorch's optimizers: the old graph has the old values in it, and they are gone.
TEST(ShardedOptimizerChanges, AGraphFromBeforeAStepIsRefused) {
  for (const bool is_shared : {false, true})
    run_training(2, "shm", [&](const ProcessGroup& group) {
      ChangedModel ddp = make_changed_model(group, is_shared);
      ShardedOptimizer<optim::SGD> optimizer(ddp, optim::SGDOptions(0.1));
      const at::Tensor loss = changed_loss(ddp, group, 0);
      loss.backward({}, /*retain_graph=*/true);
      optimizer.step();
      std::string error;
      try {
        loss.backward();
      } catch (const c10::Error& caught) {
        error = caught.what_without_backtrace();
      }
      EXPECT_TRUE(says(error, "modified by an inplace operation")) << error;
    });
}

TEST(ShardedOptimizerChanges, ParametersThatMovedAreTold) {
  run_training(2, "shm", [](const ProcessGroup& group) {
    ChangedModel ddp = make_changed_model(group);
    ShardedOptimizer<optim::SGD> first(ddp, optim::SGDOptions(0.1));
    ShardedOptimizer<optim::SGD> second(ddp, optim::SGDOptions(0.1));
    changed_loss(ddp, group, 0).backward();
    const std::string error = usage_error_of([&] { first.step(); });
    EXPECT_TRUE(says(error, "a parameter of shape [16, 6] is no longer in the memory")) << error;
    EXPECT_NO_THROW(second.step());
    ddp.parameters()[0].set_data(ddp.parameters()[0].detach().clone());
    EXPECT_TRUE(says(usage_error_of([&] { second.step(); }), "is no longer in the memory"));
  });
}

struct NetWithoutSome : torch::nn::Module {
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(6, 3));
  at::Tensor nothing = register_parameter("nothing", torch::empty({0}));
  at::Tensor forward(const at::Tensor& input) { return linear(input) + nothing.sum(); }
};

/// They are nowhere, and have not moved.
TEST(ShardedOptimizerChanges, ParametersMayHaveNoElements) {
  run_training(2, "shm", [](const ProcessGroup& group) {
    DistributedDataParallel ddp(std::make_shared<NetWithoutSome>(), group);
    ShardedOptimizer<optim::SGD> optimizer(ddp, optim::SGDOptions(0.1));
    ddp(part_of(0, group, group->getRank())).sum().backward();
    EXPECT_NO_THROW(optimizer.step());
  });
}

TEST(ShardedOptimizerChanges, GradientsOfOneRankAloneAreNoStep) {
  run_training(2, "shm", [](const ProcessGroup& group) {
    ChangedModel ddp = make_changed_model(group, /*is_shared=*/true);
    ShardedOptimizer<optim::SGD> optimizer(ddp, optim::SGDOptions(0.1));
    changed_loss(ddp, group, 0).backward();
    {
      const auto no_sync = ddp.no_sync();
      changed_loss(ddp, group, 1).backward();
    }
    EXPECT_TRUE(says(usage_error_of([&] { optimizer.step(); }), "has a gradient of this rank alone"));
    EXPECT_TRUE(says(usage_error_of([&] { optimizer.clip_grad_norm_(1); }), "has a gradient of this rank alone"));
    optimizer.zero_grad();
    EXPECT_NO_THROW(optimizer.step());
  });
}

}  // namespace
}  // namespace retinue
