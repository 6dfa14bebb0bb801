#include "retinue/torch/checkpoint.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/distributed_sampler.h"
#include "support/captured_stderr.h"
#include "support/ranks.h"
#include "support/says.h"
#include "torch/checkpoint_scene.h"
#include "torch/several_hosts.h"

namespace retinue {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::expect_same_future;
using test::expect_same_module;
using test::Folder;
using test::group_of;
using test::make_adamw;
using test::make_sgd;
using test::run_ranks;
using test::says;
using test::SeveralHosts;
using test::Trained;

/// A backend, or one with "_async".
class CheckpointOfBackend : public testing::TestWithParam<const char*> {
 protected:
  static ProcessGroup group(const JobGroup& members) {
    return group_of(members, says(GetParam(), "gloo") ? "gloo" : "shm");
  }
  static CheckpointOptions options() { return {.async = says(GetParam(), "async")}; }

  Folder folder_;
};
INSTANTIATE_TEST_SUITE_P(Ways, CheckpointOfBackend, testing::Values("shm", "shm_async", "gloo_async"));

TEST_P(CheckpointOfBackend, OtherNumbersOfRanksLoadWhatTwoSaved) {
  run_ranks(2, [&](const JobGroup& members) {
    Trained trained(1, make_adamw, 3);
    Checkpoint checkpoint(folder_.path(), group(members), options());
    checkpoint.save(3, trained.state());
    trained.train();  // While it is written.
    checkpoint.wait();
    EXPECT_EQ(checkpoint.steps(), std::vector<std::int64_t>{3});
  });
  for (const int ranks : {1, 2, 3})
    run_ranks(ranks, [&](const JobGroup& members) {
      Trained loaded(2 + static_cast<std::uint64_t>(members.rank), make_adamw, 1);
      Checkpoint checkpoint(folder_.path(), group(members), options());
      EXPECT_EQ(checkpoint.load_newest(loaded.state()), 3);
      Trained expected(1, make_adamw, 3);
      expect_same_future(expected, loaded);
    });
}

TEST(Checkpoint, NamesAreThoseOfTheModuleItself) {
  const Folder folder;
  run_ranks(2, [&](const JobGroup& members) {
    const ProcessGroup group = group_of(members);
    Checkpoint checkpoint(folder.path(), group);
    torch::manual_seed(1);
    torch::nn::Linear net(30, 20);
    DistributedDataParallel model(net, group);
    checkpoint.save(1, {.model = model});
    torch::nn::Linear other(30, 20);
    checkpoint.load(1, {.model = other});
    expect_same_module(*net, *other);
    torch::nn::Linear third(30, 20);
    torch::nn::Module& module = *third;
    checkpoint.load(1, {.model = module});
    expect_same_module(*net, *third);
  });
}

TEST(Checkpoint, LoadsNothingWhereNothingIs) {
  const Folder folder;
  run_ranks(2, [&](const JobGroup& members) {
    Checkpoint checkpoint(folder.path() + "/a/new/one", group_of(members));
    torch::nn::Linear net(3, 2);
    EXPECT_EQ(checkpoint.load_newest({.model = net}), std::nullopt);
    const std::string text = error_of([&] { checkpoint.load(5, {.model = net}); });
    EXPECT_TRUE(says(text, "Checkpoint: cannot load step 5: rank 0: cannot open ")) << text;
    EXPECT_TRUE(says(text, "/a/new/one/step-000000005.pt: ENOENT")) << text;
  });
}

TEST(Checkpoint, UnfinishedAndOtherFilesAreNoSteps) {
  const Folder folder;
  for (const char* name : {"step-000000009.pt.unfinished", "step-8.pt", "step-000000007.pth", "best.pt"})
    std::ofstream(folder.path() + "/" + name) << "no checkpoint";
  run_ranks(2, [&](const JobGroup& members) {
    Checkpoint checkpoint(folder.path(), group_of(members));
    torch::nn::Linear net(3, 2);
    EXPECT_EQ(checkpoint.load_newest({.model = net}), std::nullopt);
    checkpoint.save(2, {.model = net});
    EXPECT_EQ(checkpoint.load_newest({.model = net}), 2);
  });
  EXPECT_FALSE(fs::exists(folder.path() + "/step-000000009.pt.unfinished"));
  EXPECT_TRUE(fs::exists(folder.path() + "/step-8.pt"));
}

TEST(Checkpoint, KeepsTheNewest) {
  const Folder folder;
  run_ranks(2, [&](const JobGroup& members) {
    Checkpoint checkpoint(folder.path(), group_of(members), {.keep = 3, .async = true});
    torch::nn::Linear net(3, 2);
    for (const std::int64_t step : std::vector<std::int64_t>{10, 20, 30, 40, 1'000'000'000'000, 50})
      checkpoint.save(step, {.model = net});
    checkpoint.wait();
    EXPECT_EQ(checkpoint.steps(), (std::vector<std::int64_t>{40, 50, 1'000'000'000'000}));
    checkpoint.save(5, {.model = net});  // Of a training that began anew: it is the user's newest.
    checkpoint.wait();
    EXPECT_EQ(checkpoint.steps(), (std::vector<std::int64_t>{5, 40, 50, 1'000'000'000'000}));
  });
}

TEST(Checkpoint, ReplacesAStep) {
  const Folder folder;
  run_ranks(2, [&](const JobGroup& members) {
    Checkpoint checkpoint(folder.path(), group_of(members));
    torch::nn::Linear net(3, 2);
    checkpoint.save(1, {.model = net});
    {
      const torch::NoGradGuard no_grad;
      net->weight.fill_(5);
    }
    checkpoint.save(1, {.model = net});
    torch::nn::Linear loaded(3, 2);
    checkpoint.load(1, {.model = loaded});
    EXPECT_TRUE(torch::equal(loaded->weight, torch::full({2, 3}, 5.0f)));
  });
}

TEST(Checkpoint, BuffersAreThoseOfRankZero) {
  const Folder folder;
  run_ranks(2, [&](const JobGroup& members) {
    torch::nn::BatchNorm1d norm(5000);
    norm->running_mean.fill_(members.rank + 1);
    Checkpoint checkpoint(folder.path(), group_of(members));
    checkpoint.save(1, {.model = norm});
    checkpoint.load(1, {.model = norm});
    EXPECT_TRUE(torch::equal(norm->running_mean, torch::full({5000}, 1.0f)));
  });
}

TEST(Checkpoint, PartsThatAreLeftOutStayInTheFile) {
  const Folder folder;
  run_ranks(2, [&](const JobGroup& members) {
    Trained trained(1, make_sgd, 2);
    const ProcessGroup group = group_of(members);
    DistributedSampler sampler(10, group);
    Checkpoint checkpoint(folder.path(), group);
    checkpoint.save(2, {.model = trained.net, .optimizer = *trained.optimizer, .sampler = sampler});
    Trained loaded(2, make_sgd, 0);
    checkpoint.load(2, {.model = loaded.net});
    expect_same_module(*trained.net, *loaded.net);
    EXPECT_TRUE(loaded.optimizer->state().empty());
    checkpoint.load(2, {.optimizer = *loaded.optimizer});
    expect_same_future(trained, loaded);
  });
}

TEST(Checkpoint, EachRankGetsItsRandomNumbers) {
  const Folder folder;
  run_ranks(2, [&](const JobGroup& members) {
    torch::manual_seed(10 + static_cast<std::uint64_t>(members.rank));
    torch::randn({3});
    Checkpoint checkpoint(folder.path(), group_of(members));
    checkpoint.save(1, {});
    const at::Tensor expected = torch::randn({100});
    checkpoint.load(1, {.random_generators = false});
    EXPECT_FALSE(torch::equal(torch::randn({100}), expected));
    checkpoint.load(1, {});
    EXPECT_TRUE(torch::equal(torch::randn({100}), expected));
  });
  run_ranks(3, [&](const JobGroup& members) {
    const auto seed = static_cast<std::uint64_t>(members.rank < 2 ? 10 + members.rank : 5);
    torch::manual_seed(seed);
    if (members.rank < 2) torch::randn({3});
    const at::Tensor expected = torch::randn({100});
    torch::manual_seed(5);
    Checkpoint(folder.path(), group_of(members)).load(1, {});
    EXPECT_TRUE(torch::equal(torch::randn({100}), expected));
  });
}

TEST(Checkpoint, SamplersContinueInTheMiddleOfAnEpoch) {
  const Folder folder;
  run_ranks(2, [&](const JobGroup& members) {
    const ProcessGroup group = group_of(members);
    DistributedSampler sampler(12, group, {.seed = 3});
    sampler.set_epoch(4);
    sampler.reset();
    sampler.next(2);
    Checkpoint checkpoint(folder.path(), group);
    checkpoint.save(1, {.sampler = sampler, .consumed = 2});
    DistributedSampler loaded(12, group, {.seed = 3});
    checkpoint.load(1, {.sampler = loaded});
    EXPECT_EQ(loaded.epoch(), 4);
    loaded.reset();
    EXPECT_EQ(loaded.next(100), sampler.next(100));
    DistributedSampler shorter(3, group);
    const std::string text = error_of([&] { checkpoint.load(1, {.sampler = shorter}); });
    EXPECT_TRUE(says(text, "4 indices were consumed, but the data set has 3")) << text;
  });
}

TEST(Checkpoint, RanksThatSaveDifferentThingsAreToldWhat) {
  const Folder folder;
  run_ranks(2, [&](const JobGroup& members) {
    Checkpoint checkpoint(folder.path(), group_of(members), {.async = true});
    torch::nn::Linear net(3, members.rank + 2);
    EXPECT_EQ(
        error_of([&] { checkpoint.save(1, {.model = net}); }),
        "Checkpoint: cannot save step 1: rank 0: the ranks have different things to save: rank 0 has "
        "model[\"weight\"] of type Float and shape [2, 3], but rank 1 has model[\"weight\"] of type Float and shape "
        "[3, 3]");
    torch::nn::Linear same(3, 2);
    std::string text = error_of([&] { checkpoint.save(members.rank, {.model = same}); });
    EXPECT_TRUE(says(text, "rank 0 has step 0, but rank 1 has step 1")) << text;
    torch::optim::SGD optimizer(same->parameters(), members.rank == 0 ? 0.5 : 0.25);
    text = error_of([&] { checkpoint.save(1, {.model = same, .optimizer = optimizer}); });
    EXPECT_TRUE(says(text, "lr=0.25")) << text;
    text = error_of([&] { checkpoint.save(-1, {}); });
    EXPECT_TRUE(says(text, "a step must be at least 0")) << text;
    checkpoint.save(1, {.model = same});
    EXPECT_EQ(checkpoint.load_newest({.model = same}), 1);
  });
}

TEST(Checkpoint, WhatCannotBeSavedIsNamed) {
  const Folder folder;
  run_ranks(2, [&](const JobGroup& members) {
    Checkpoint checkpoint(folder.path(), group_of(members));
    torch::nn::Module sparse;
    sparse.register_buffer("edges", torch::eye(3).to_sparse());
    EXPECT_EQ(
        error_of([&] { checkpoint.save(1, {.model = sparse}); }),
        "Checkpoint: cannot save step 1: rank 0: model[\"edges\"] has the layout Sparse; only dense tensors can be "
        "saved");
    torch::nn::Module newer;
    newer.register_buffer("codes", torch::zeros({3}, torch::kUInt16));
    const std::string text = error_of([&] { checkpoint.save(1, {.model = newer}); });
    EXPECT_TRUE(says(text, "model[\"codes\"] has the type UInt16, which torch.load() can't read")) << text;
    EXPECT_TRUE(checkpoint.steps().empty());
  });
}

/// On two hosts that share a disk.
TEST_F(SeveralHosts, SaveAndLoadCheckpoints) {
  const Folder folder;
  run_ranks(4, [&](int rank) {
    at::set_num_threads(1);
    const test::CapturedStderr said;  // That the group uses gloo.
    said.begin();
    const ProcessGroup group = init_process_group(test::meeting(rank, 4));
    Trained trained(1, make_adamw, 2);
    Checkpoint checkpoint(folder.path(), group, {.async = true});
    checkpoint.save(1, trained.state());
    Trained loaded(2, make_adamw, 0);
    EXPECT_EQ(checkpoint.load_newest(loaded.state()), 1);
    expect_same_future(trained, loaded);
    barrier(group);
  });
}

}  // namespace
}  // namespace retinue
