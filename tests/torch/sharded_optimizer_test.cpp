// ShardedOptimizer against LibTorch's optimizers on the joined batch of all ranks.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "launch/log_files.h"
#include "retinue/torch/checkpoint.h"
#include "retinue/torch/sharded_optimizer.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "torch/trained_net.h"

namespace retinue {
namespace {

namespace optim = torch::optim;
using test::kBatch;
using test::make_mlp;
using test::run_training;
using test::says;
using test::seeded;
using test::usage_error_of;

/// By their backend, or "shared": with shared parameters.
class ShardedOptimizers : public testing::TestWithParam<const char*> {
 protected:
  static bool is_shared() { return std::string(GetParam()) == "shared"; }
  static const char* backend() { return is_shared() ? "shm" : GetParam(); }
  static void run(int ranks, const std::function<void(const ProcessGroup&)>& body) {
    run_training(ranks, backend(), body);
  }
  static DistributedDataParallelOptions options() { return {.share_parameters = is_shared()}; }
};
INSTANTIATE_TEST_SUITE_P(Ways, ShardedOptimizers, testing::Values("shm", "shared", "gloo"));

at::Tensor loss_of(torch::nn::Sequential& net, const at::Tensor& data, const at::Tensor& target) {
  return torch::nn::functional::cross_entropy(net->forward(data), target);
}

/// The loss of one rank's part of a step's batch. The mean over the ranks is the loss of the whole batch.
template <class Model>
at::Tensor part_loss(Model& model, const ProcessGroup& group, int step) {
  const auto [data, target] = test::joined_batch(step, group->getSize(), {6});
  const std::int64_t first = kBatch * group->getRank();
  return torch::nn::functional::cross_entropy(model.forward(data.narrow(0, first, kBatch)),
                                              target.narrow(0, first, kBatch));
}

at::Tensor joined_loss(torch::nn::Sequential& net, const ProcessGroup& group, int step) {
  const auto [data, target] = test::joined_batch(step, group->getSize(), {6});
  return loss_of(net, data, target);
}

template <class Model>
void expect_equal(Model& model, torch::nn::Sequential& alone, const std::string& what) {
  const auto mine = model.named_parameters();
  for (const auto& item : alone->named_parameters())
    EXPECT_TRUE(torch::allclose(mine[item.key()], item.value(), 1e-5, 1e-6))
        << what << ", " << item.key() << ": " << (mine[item.key()] - item.value()).abs().max();
}

/// All ranks have the same bits.
template <class Model>
void expect_same_bits(Model& model, const ProcessGroup& group) {
  for (const auto& item : model.named_parameters()) {
    const at::Tensor mine = item.value().detach().clone();
    std::vector<at::Tensor> all;
    for (int rank = 0; rank < group->getSize(); ++rank) all.push_back(torch::empty_like(mine));
    all_gather(all, mine, group);
    for (const at::Tensor& one : all) EXPECT_TRUE(one.equal(mine)) << item.key();
  }
}

/// Trains on 1, 2 and 3 ranks, and alone, by `Algorithm` with these options, and compares.
template <class Algorithm, class Options>
void compare(const Options& options, const DistributedDataParallelOptions& ddp_options, const char* backend) {
  for (const int ranks : {1, 2, 3})
    run_training(ranks, backend, [&](const ProcessGroup& group) {
      torch::nn::Sequential alone = seeded(4, [] { return make_mlp(); });
      DistributedDataParallel ddp(seeded(4, [] { return make_mlp(); }), group, ddp_options);
      Algorithm optimizer_alone(alone->parameters(), options);
      ShardedOptimizer<Algorithm> optimizer(ddp, options);
      for (int step = 0; step < 6; ++step) {
        optimizer.zero_grad();
        optimizer_alone.zero_grad();
        part_loss(ddp, group, step).backward();
        joined_loss(alone, group, step).backward();
        optimizer.step();
        optimizer_alone.step();
      }
      expect_equal(ddp, alone, std::to_string(group->getSize()) + " ranks");
      expect_same_bits(ddp, group);
    });
}

TEST_P(ShardedOptimizers, AreSgd) {
  compare<optim::SGD>(optim::SGDOptions(0.1), options(), backend());
  compare<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01).nesterov(true), options(), backend());
  compare<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9).dampening(0.5), options(), backend());
}

TEST_P(ShardedOptimizers, AreAdam) {
  compare<optim::Adam>(optim::AdamOptions(0.01).weight_decay(0.01), options(), backend());
  compare<optim::Adam>(optim::AdamOptions(0.01).amsgrad(true), options(), backend());
}

TEST_P(ShardedOptimizers, AreAdamW) {
  compare<optim::AdamW>(optim::AdamWOptions(0.01).weight_decay(0.05), options(), backend());
  compare<optim::AdamW>(optim::AdamWOptions(0.01).amsgrad(true).betas({0.8, 0.95}), options(), backend());
}

TEST_P(ShardedOptimizers, ClipAccumulateAndScale) {
  for (const int ranks : {1, 2, 3})
    run(ranks, [](const ProcessGroup& group) {
      for (const double norm_type : {2.0, 3.0, static_cast<double>(INFINITY)}) {
        torch::nn::Sequential alone = seeded(4, [] { return make_mlp(); });
        DistributedDataParallel ddp(seeded(4, [] { return make_mlp(); }), group, options());
        optim::AdamW optimizer_alone(alone->parameters(), optim::AdamWOptions(0.01));
        ShardedOptimizer<optim::AdamW> optimizer(ddp, optim::AdamWOptions(0.01));
        for (int step = 0; step < 4; ++step) {
          optimizer.zero_grad();
          optimizer_alone.zero_grad();
          {
            const auto accumulates = ddp.no_sync();
            (part_loss(ddp, group, 2 * step) * 512).backward();
          }
          (part_loss(ddp, group, 2 * step + 1) * 512).backward();
          (part_loss(ddp, group, 2 * step + 2) * 512).backward();  // A second averaging one.
          for (int i = 0; i < 3; ++i) joined_loss(alone, group, 2 * step + i).backward();
          EXPECT_TRUE(optimizer.unscale_(512));
          const double norm = optimizer.clip_grad_norm_(0.1, norm_type);
          const double norm_alone = torch::nn::utils::clip_grad_norm_(alone->parameters(), 0.1, norm_type);
          EXPECT_NEAR(norm, norm_alone, 1e-5 * norm_alone);
          EXPECT_GT(norm_alone, 0.1);
          optimizer.step();
          optimizer_alone.step();
        }
        expect_equal(ddp, alone, "norm " + std::to_string(norm_type));
        expect_same_bits(ddp, group);
      }
    });
}

TEST_P(ShardedOptimizers, SkipAStepWhoseGradientsAreNotFinite) {
  run(2, [](const ProcessGroup& group) {
    torch::nn::Sequential alone = seeded(4, [] { return make_mlp(); });
    DistributedDataParallel ddp(seeded(4, [] { return make_mlp(); }), group, options());
    optim::SGD optimizer_alone(alone->parameters(), 0.1);
    ShardedOptimizer<optim::SGD> optimizer(ddp, optim::SGDOptions(0.1));
    const double factor = group->getRank() == 1 ? INFINITY : 1;
    (part_loss(ddp, group, 0) * factor).backward();
    EXPECT_FALSE(optimizer.unscale_(512));
    optimizer.step();
    expect_equal(ddp, alone, "nothing");
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      optimizer_alone.zero_grad();
      part_loss(ddp, group, step).backward();
      joined_loss(alone, group, step).backward();
      const bool is_finite = step > 0 || optimizer.unscale_(1);
      EXPECT_TRUE(is_finite);
      optimizer.step();
      optimizer_alone.step();
      expect_equal(ddp, alone, "step " + std::to_string(step));
    }
    // Gradients that are dropped after they were scaled.
    part_loss(ddp, group, 5).backward();
    optimizer.unscale_(4);
    optimizer.clip_grad_norm_(1e-3);
    optimizer.zero_grad();
    optimizer_alone.zero_grad();
    part_loss(ddp, group, 6).backward();
    joined_loss(alone, group, 6).backward();
    optimizer.step();
    optimizer_alone.step();
    expect_equal(ddp, alone, "after dropped ones");
    expect_same_bits(ddp, group);
  });
}

TEST_P(ShardedOptimizers, HaveGroupsAndSchedulers) {
  run(2, [](const ProcessGroup& group) {
    torch::nn::Sequential alone = seeded(4, [] { return make_mlp(); });
    DistributedDataParallel ddp(seeded(4, [] { return make_mlp(); }), group, options());
    const auto groups_of = [](const std::vector<at::Tensor>& all) {
      std::vector<at::Tensor> weights, biases;
      for (const at::Tensor& one : all) (one.dim() > 1 ? weights : biases).push_back(one);
      std::vector<optim::OptimizerParamGroup> groups;
      groups.emplace_back(biases, std::make_unique<optim::AdamWOptions>(optim::AdamWOptions(0.02).weight_decay(0)));
      groups.emplace_back(weights);
      return groups;
    };
    optim::AdamW optimizer_alone(groups_of(alone->parameters()), optim::AdamWOptions(0.01));
    ShardedOptimizer<optim::AdamW> optimizer(ddp, groups_of(ddp.parameters()), optim::AdamWOptions(0.01));
    optim::StepLR scheduler_alone(optimizer_alone, 2, 0.5);
    optim::StepLR scheduler(optimizer, 2, 0.5);
    for (int step = 0; step < 6; ++step) {
      optimizer.zero_grad();
      optimizer_alone.zero_grad();
      part_loss(ddp, group, step).backward();
      joined_loss(alone, group, step).backward();
      optimizer.step([] { return at::Tensor(); });
      optimizer_alone.step();
      scheduler.step();
      scheduler_alone.step();
    }
    expect_equal(ddp, alone, "groups");
  });
}

TEST_P(ShardedOptimizers, HaveTheirShareOfTheState) {
  run(3, [](const ProcessGroup& group) {
    DistributedDataParallel ddp(seeded(4, [] { return make_mlp(64); }), group, options());
    ShardedOptimizer<optim::AdamW> optimizer(ddp, optim::AdamWOptions(0.01));
    part_loss(ddp, group, 0).backward();
    optimizer.step();
    std::int64_t all = 0, mine = 0, of_state = 0;
    for (const at::Tensor& parameter : ddp.parameters()) all += parameter.numel();
    for (const auto& slice : optimizer.slices()) {
      mine += slice.end - slice.begin;
      const auto& state = *optimizer.state().at(ddp.parameters()[slice.parameter].unsafeGetTensorImpl());
      of_state += static_cast<const optim::AdamWParamState&>(state).exp_avg().numel();
    }
    EXPECT_EQ(of_state, mine);
    EXPECT_NEAR(static_cast<double>(mine), static_cast<double>(all) / 3, 16 * 8);
    const at::Tensor sum = torch::full({1}, mine, torch::kLong);
    all_reduce(sum, group);
    EXPECT_EQ(sum.item<std::int64_t>(), all);
  });
}

TEST_P(ShardedOptimizers, ContinueFromASavedState) {
  run(2, [](const ProcessGroup& group) {
    DistributedDataParallel first(seeded(4, [] { return make_mlp(); }), group, options());
    ShardedOptimizer<optim::AdamW> optimizer(first, optim::AdamWOptions(0.01));
    const auto train = [&](auto& ddp, auto& with, int begin, int end) {
      for (int step = begin; step < end; ++step) {
        with.zero_grad();
        part_loss(ddp, group, step).backward();
        with.step();
      }
    };
    train(first, optimizer, 0, 3);
    std::stringstream saved;
    torch::save(optimizer, saved);
    torch::nn::Sequential copy = make_mlp();
    {
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < copy->parameters().size(); ++i) copy->parameters()[i].copy_(first.parameters()[i]);
    }
    DistributedDataParallel second(copy, group, options());
    ShardedOptimizer<optim::AdamW> loaded(second, optim::AdamWOptions(0.5));
    torch::load(loaded, saved);
    train(first, optimizer, 3, 6);
    train(second, loaded, 3, 6);
    for (std::size_t i = 0; i < first.parameters().size(); ++i)
      EXPECT_TRUE(first.parameters()[i].equal(second.parameters()[i]));
    std::stringstream other;
    torch::serialize::OutputArchive empty;
    empty.save_to(other);
    torch::serialize::InputArchive archive;
    archive.load_from(other);
    EXPECT_TRUE(says(usage_error_of([&] { loaded.load(archive); }), "none of a ShardedOptimizer"));
  });
}

TEST_P(ShardedOptimizers, AreSavedByACheckpointForAnyNumberOfRanks) {
  const test::Folder folder;
  const auto train = [](auto& ddp, auto& optimizer, const ProcessGroup& group, int begin, int end) {
    for (int step = begin; step < end; ++step) {
      optimizer.zero_grad();
      // The same batch on all ranks: their number makes no difference.
      const auto [data, target] = test::joined_batch(step, 1, {6});
      torch::nn::functional::cross_entropy(ddp.forward(data), target).backward();
      optimizer.step();
    }
    barrier(group);
  };
  run(2, [&](const ProcessGroup& group) {
    DistributedDataParallel ddp(seeded(4, [] { return make_mlp(); }), group, options());
    ShardedOptimizer<optim::AdamW> optimizer(ddp, optim::AdamWOptions(0.01));
    train(ddp, optimizer, group, 0, 3);
    Checkpoint checkpoint(folder.path(), group);
    checkpoint.save(3, {.model = ddp, .optimizer = optimizer});
    train(ddp, optimizer, group, 3, 6);
    checkpoint.save(6, {.model = ddp, .optimizer = optimizer});
  });
  for (const int ranks : {1, 2, 3})
    run(ranks, [&](const ProcessGroup& group) {
      DistributedDataParallel ddp(seeded(5, [] { return make_mlp(); }), group, options());
      ShardedOptimizer<optim::AdamW> optimizer(ddp, optim::AdamWOptions(0.5));
      torch::nn::Sequential plain = make_mlp();
      optim::AdamW plain_optimizer(plain->parameters(), 0.5);
      Checkpoint checkpoint(folder.path(), group);
      checkpoint.load(3, {.model = ddp, .optimizer = optimizer});
      checkpoint.load(3, {.model = plain, .optimizer = plain_optimizer});
      train(ddp, optimizer, group, 3, 6);
      train(*plain, plain_optimizer, group, 3, 6);
      expect_equal(ddp, plain, std::to_string(ranks) + " ranks and one");
      torch::nn::Sequential wanted = make_mlp();
      checkpoint.load(6, {.model = wanted});
      expect_equal(ddp, wanted, std::to_string(ranks) + " ranks and 2");
    });
}

TEST_P(ShardedOptimizers, RefuseWhatIsNotTheModules) {
  run(2, [](const ProcessGroup& group) {
    DistributedDataParallel ddp(seeded(4, [] { return make_mlp(); }), group, options());
    const auto make = [&](std::vector<at::Tensor> parameters) {
      return usage_error_of(
          [&] { ShardedOptimizer<optim::SGD>(ddp, {optim::OptimizerParamGroup(parameters)}, optim::SGDOptions(0.1)); });
    };
    EXPECT_TRUE(
        says(make({torch::ones({2}).set_requires_grad(true)}), "not the module's; take them from ddp.parameters()"));
    EXPECT_TRUE(says(make({ddp.parameters()[0], ddp.parameters()[0]}), "is twice"));
    EXPECT_TRUE(says(make({}), "no parameter"));
    EXPECT_THROW(ShardedOptimizer<optim::SGD>(ddp, optim::SGDOptions(-1)), c10::Error);
    ShardedOptimizer<optim::SGD> optimizer(ddp, optim::SGDOptions(0.1));
    EXPECT_TRUE(says(usage_error_of([&] { optimizer.clip_grad_norm_(0); }), "max_norm must be above 0"));
    EXPECT_TRUE(says(usage_error_of([&] { optimizer.unscale_(NAN); }), "loss_scale"));
    optimizer.add_param_group(optim::OptimizerParamGroup({torch::ones({2}).set_requires_grad(true)}));
    EXPECT_TRUE(says(usage_error_of([&] { optimizer.step(); }), "pass all parameter groups to its constructor"));
  });
}

}  // namespace
}  // namespace retinue
