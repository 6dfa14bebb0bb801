// Ranks with different numbers of inputs.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "retinue/torch/join.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "torch/trained_net.h"

namespace retinue {
namespace {

namespace nn = torch::nn;
using test::part_of;
using test::run_training;
using test::says;
using test::seeded;
using test::usage_error_of;

class Joins : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, Joins, testing::Values("shm", "gloo"));

nn::Sequential make_joined_net() {
  return nn::Sequential(nn::Linear(6, 8), nn::BatchNorm1d(8), nn::Tanh(), nn::Linear(8, 3));
}

/// The number of inputs of a rank: another one is the first to end with each `turn`.
int inputs_of(int rank, int turn) {
  return 2 + 2 * ((rank + turn) % 3);
}

/// What one process makes of the inputs of all ranks. Buffers are those of the first rank that has inputs.
nn::Sequential train_alone(int ranks, int turn, bool divides_by_all) {
  nn::Sequential net = seeded(9, make_joined_net);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  auto members = std::vector<int>();
  for (int step = 0;; ++step) {
    members.clear();
    for (int rank = 0; rank < ranks; ++rank)
      if (step < inputs_of(rank, turn)) members.push_back(rank);
    if (members.empty()) return net;
    optimizer.zero_grad();
    std::vector<at::Tensor> before, after;
    for (const at::Tensor& buffer : net->buffers()) before.push_back(buffer.clone());
    for (const int rank : members) {
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < before.size(); ++i) net->buffers()[i].copy_(before[i]);
      const torch::AutoGradMode with_grad(true);
      const auto generator_data =
          test::joined_batch(step, ranks, {6}).first.narrow(0, test::kBatch * rank, test::kBatch);
      const double parts = divides_by_all ? ranks : static_cast<double>(members.size());
      (net->forward(generator_data).square().mean() / parts).backward();
      if (rank == members.front())
        for (const at::Tensor& buffer : net->buffers()) after.push_back(buffer.clone());
    }
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < after.size(); ++i) net->buffers()[i].copy_(after[i]);
    optimizer.step();
  }
}

TEST_P(Joins, TrainOnAllInputs) {
  for (const int ranks : {1, 2, 3})
    for (int turn = 0; turn < 3; ++turn)
      for (const bool divides_by_all : {true, false})
        run_training(ranks, GetParam(), [&](const ProcessGroup& group) {
          const nn::Sequential alone = train_alone(ranks, turn, divides_by_all);
          DistributedDataParallel ddp(seeded(9, make_joined_net), group);
          torch::optim::SGD optimizer(ddp.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
          int steps = 0;
          join({.models = {&ddp}, .divide_by_initial_world_size = divides_by_all}, [&] {
            for (; steps < inputs_of(group->getRank(), turn); ++steps) {
              optimizer.zero_grad();
              ddp(part_of(steps, group, group->getRank())).square().mean().backward();
              optimizer.step();
            }
          });
          EXPECT_EQ(steps, inputs_of(group->getRank(), turn));
          for (std::size_t i = 0; i < alone->parameters().size(); ++i)
            EXPECT_TRUE(torch::allclose(ddp.parameters()[i], alone->parameters()[i], 1e-4, 1e-5)) << i;
          for (std::size_t i = 0; i < alone->buffers().size(); ++i)
            EXPECT_TRUE(torch::allclose(ddp->buffers()[i], alone->buffers()[i], 1e-4, 1e-5)) << "buffer " << i;
          // And without join() again.
          optimizer.zero_grad();
          EXPECT_NO_THROW(ddp(part_of(0, group, group->getRank())).square().mean().backward());
        });
}

TEST_P(Joins, TakeSeveralModels) {
  run_training(2, GetParam(), [&](const ProcessGroup& group) {
    DistributedDataParallel first(nn::Linear(2, 1), group, {.find_unused_parameters = true});
    DistributedDataParallel second(nn::Linear(3, 1), group);
    const int inputs = group->getRank() == 0 ? 5 : 2;
    join({.models = {&first, &second}}, [&] {
      for (int i = 0; i < inputs; ++i) {
        first->zero_grad();
        second->zero_grad();
        first(torch::ones({1, 2})).sum().backward();
        second(torch::ones({1, 3})).sum().backward();
        const bool is_alone = i >= 2;
        EXPECT_EQ(first->bias.grad()[0].item<float>(), is_alone ? 0.5F : 1);
        EXPECT_EQ(second->bias.grad()[0].item<float>(), is_alone ? 0.5F : 1);
      }
    });
  });
}

TEST_P(Joins, MayEndWithTheFirstRank) {
  run_training(2, GetParam(), [&](const ProcessGroup& group) {
    DistributedDataParallel ddp(nn::Linear(2, 1), group);
    int done = 0;
    const std::string error = usage_error_of([&] {
      join({.models = {&ddp}, .throw_on_early_termination = true}, [&] {
        for (; done < (group->getRank() == 1 ? 2 : 4); ++done) ddp(torch::ones({1, 2})).sum().backward();
      });
    });
    EXPECT_TRUE(says(error, "join: rank 1 has no more inputs, but others have")) << error;
    EXPECT_EQ(done, 2);
    EXPECT_NO_THROW(ddp(torch::ones({1, 2})).sum().backward());
  });
}

TEST(ShmJoins, AreRefusedWhereTheyCantBe) {
  run_training(2, "shm", [&](const ProcessGroup& group) {
    EXPECT_TRUE(says(usage_error_of([&] { join({.models = {}}, [] {}); }), "no model"));
    DistributedDataParallel shared(nn::Linear(2, 1), group, {.share_parameters = true});
    EXPECT_TRUE(says(usage_error_of([&] { join({.models = {&shared}}, [] {}); }), "share_parameters"));
    DistributedDataParallel ddp(nn::Linear(2, 1), group);
    join({.models = {&ddp}},
         [&] { EXPECT_TRUE(says(usage_error_of([&] { join({.models = {&ddp}}, [] {}); }), "in another join()")); });
    EXPECT_THROW(join({.models = {&ddp}}, [] { throw std::runtime_error("of the program"); }), std::runtime_error);
    EXPECT_NO_THROW(join({.models = {&ddp}}, [] {}));
  });
}

}  // namespace
}  // namespace retinue
