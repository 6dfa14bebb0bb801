// One copy of the parameters for all ranks, and what goes wrong with it.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <cmath>
#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "retinue/torch/sharded_optimizer.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "torch/trained_net.h"

namespace retinue {
namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;
using test::make_mlp;
using test::part_of;
using test::run_ranks;
using test::run_training;
using test::says;
using test::seeded;
using test::usage_error_of;

using SharedModel = DistributedDataParallel<nn::Sequential>;

SharedModel make_shared_model(const ProcessGroup& group, DistributedDataParallelOptions options = {}) {
  options.share_parameters = true;
  return SharedModel(seeded(4, [] { return make_mlp(); }), group, options);
}

at::Tensor shared_loss(SharedModel& model, const ProcessGroup& group, int step) {
  return model(part_of(step, group, group->getRank())).square().mean();
}

TEST(SharedParameters, AreOneCopy) {
  run_training(3, "shm", [](const ProcessGroup& group) {
    nn::Sequential net = seeded(100 + static_cast<std::uint64_t>(group->getRank()), [] { return make_mlp(); });
    const at::Tensor first = net->parameters()[0];
    SharedModel ddp(net, group, {.share_parameters = true});
    EXPECT_TRUE(ddp.parameters()[0].is_same(first));  // The same object, for optimizers.
    barrier(group);
    if (group->getRank() == 2) {
      const torch::NoGradGuard no_grad;
      ddp.parameters()[3].fill_(7);
    }
    barrier(group);
    EXPECT_TRUE(ddp.parameters()[3].eq(7).all().item<bool>());
    const at::Tensor value = first.detach().clone();
    broadcast(value, group);
    EXPECT_TRUE(value.equal(first));
  });
}

TEST(SharedParameters, MayBeChannelsLastAndFrozen) {
  run_training(2, "shm", [](const ProcessGroup& group) {
    const auto make = [] {
      nn::Sequential net(nn::Conv2d(3, 4, 3), nn::ReLU(), nn::Conv2d(4, 2, 3));
      net->to(torch::kFloat);
      for (at::Tensor& parameter : net->parameters())
        if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
      net->parameters()[1].set_requires_grad(false);
      return net;
    };
    nn::Sequential alone = seeded(4, make);
    SharedModel ddp(seeded(4, make), group, {.share_parameters = true});
    optim::SGD optimizer_alone(alone->parameters(), 0.1);
    ShardedOptimizer<optim::SGD> optimizer(ddp, optim::SGDOptions(0.1));
    const auto input = [](int step, int rank) {
      torch::manual_seed(10 * step + rank);
      return torch::randn({2, 3, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast);
    };
    for (int step = 0; step < 3; ++step) {
      optimizer_alone.zero_grad();
      ddp(input(step, group->getRank())).square().mean().backward();
      for (int rank = 0; rank < 2; ++rank) (alone->forward(input(step, rank)).square().mean() / 2).backward();
      optimizer.step();
      optimizer_alone.step();
    }
    for (std::size_t i = 0; i < alone->parameters().size(); ++i) {
      EXPECT_EQ(ddp.parameters()[i].strides(), alone->parameters()[i].strides());
      EXPECT_TRUE(torch::allclose(ddp.parameters()[i], alone->parameters()[i], 1e-4, 1e-5)) << i;
    }
  });
}

TEST(SharedParameters, WithoutGradientsStayAsTheyAre) {
  run_training(2, "shm", [](const ProcessGroup& group) {
    SharedModel ddp = make_shared_model(group, {.find_unused_parameters = true});
    ShardedOptimizer<optim::AdamW> optimizer(ddp, optim::AdamWOptions(0.1));
    const at::Tensor before = ddp.parameters()[0].detach().clone();
    const at::Tensor last = ddp.parameters()[4].detach().clone();
    // Only the last layer is used, and on one rank only.
    const at::Tensor input = torch::ones({2, 16});
    const at::Tensor output = ddp.module()[4]->as<nn::Linear>()->forward(input);
    const at::Tensor loss = group->getRank() == 1 ? output.sum() : (output * 0).sum();
    loss.backward();
    optimizer.clip_grad_norm_(1e9);
    optimizer.step();
    EXPECT_TRUE(before.equal(ddp.parameters()[0]));
    EXPECT_FALSE(last.equal(ddp.parameters()[4]));
    optimizer.step();  // Without a backward: nothing.
  });
}

TEST(SharedParameters, HaveNoGradientsThatAreNotAveraged) {
  run_training(2, "shm", [](const ProcessGroup& group) {
    SharedModel ddp = make_shared_model(group);
    ShardedOptimizer<optim::SGD> optimizer(ddp, optim::SGDOptions(0.1));
    shared_loss(ddp, group, 0).backward();
    EXPECT_TRUE(ddp.parameters()[0].grad().is_meta());
    EXPECT_ANY_THROW(nn::utils::clip_grad_norm_(ddp.parameters(), 1));
    optim::SGD plain(ddp.parameters(), 0.1);
    EXPECT_ANY_THROW(plain.step());
    optimizer.step();
    EXPECT_FALSE(ddp.parameters()[0].grad().defined());

    shared_loss(ddp, group, 1).backward();
    ddp.parameters()[2].mutable_grad().div_(2);
    std::string error = usage_error_of([&] { optimizer.step(); });
    EXPECT_TRUE(says(error, "the program changed the gradient of a parameter of shape [16, 16]")) << error;
    EXPECT_TRUE(says(error, "use its clip_grad_norm_() and unscale_()")) << error;
    optimizer.zero_grad();
    error = usage_error_of([&] { optimizer.step(); });
    EXPECT_TRUE(says(error, "the program replaced the gradient")) << error;

    shared_loss(ddp, group, 1).backward();  // What was set to zero is gone.
    optimizer.clip_grad_norm_(1e9);
    const at::Tensor loss = shared_loss(ddp, group, 2);
    error = usage_error_of([&] { loss.backward(); });
    EXPECT_TRUE(says(error, "followed clip_grad_norm_() or unscale_() without a step()")) << error;
  });
}

TEST(SharedParameters, ThatWereSetToZeroAreNotAddedTo) {
  for (const bool set_to_none : {false, true})
    run_training(2, "shm", [&](const ProcessGroup& group) {
      SharedModel ddp = make_shared_model(group);
      ShardedOptimizer<optim::SGD> optimizer(ddp, optim::SGDOptions(1));
      const at::Tensor before = ddp.parameters()[5].detach().clone();
      barrier(group);
      (ddp(torch::ones({1, 6})).sum() * 5).backward();
      optimizer.zero_grad(set_to_none);
      ddp(torch::ones({1, 6})).sum().backward();
      optimizer.step();
      EXPECT_TRUE(torch::allclose(before - ddp.parameters()[5], torch::ones({3})));
    });
}

TEST(SharedParameters, AreRefusedWhereTheyCantBe) {
  run_training(2, "gloo", [](const ProcessGroup& group) {
    EXPECT_TRUE(says(usage_error_of([&] { make_shared_model(group); }),
                     "share_parameters needs CPU parameters and ranks that share memory"));
  });
  run_training(2, "shm", [](const ProcessGroup& group) {
    EXPECT_TRUE(says(usage_error_of([&] { make_shared_model(group, {.hook = std::make_shared<Bf16Compress>()}); }),
                     "share_parameters and a hook exclude each other"));
    EXPECT_TRUE(says(usage_error_of([&] { make_shared_model(group, {.reducer = ReducerKind::kC10d}); }),
                     "needs the reducer kJobMemory"));
    SharedModel ddp = make_shared_model(group);
    {
      ShardedOptimizer<optim::SGD> first(ddp, optim::SGDOptions(0.1));
      EXPECT_TRUE(
          says(usage_error_of([&] { ShardedOptimizer<optim::SGD>(ddp, optim::SGDOptions(0.1)); }), "has one already"));
    }
    EXPECT_NO_THROW(ShardedOptimizer<optim::SGD>(ddp, optim::SGDOptions(0.1)));
    DistributedDataParallel outer(ddp.ptr(), group);
    const at::Tensor loss = outer(torch::ones({1, 6})).sum();
    EXPECT_TRUE(says(usage_error_of([&] { loss.backward(); }), "of which one has share_parameters"));
  });
}

TEST(SharedParameters, ThatTheProgramReplacesOrWritesAreTold) {
  run_training(2, "shm", [](const ProcessGroup& group) {
    SharedModel ddp = make_shared_model(group);
    ShardedOptimizer<optim::SGD> optimizer(ddp, optim::SGDOptions(1));
    if (group->getRank() == 1) ddp.parameters()[0].set_data(torch::zeros({16, 6}));
    const at::Tensor loss = shared_loss(ddp, group, 0);
    const std::string error = usage_error_of([&] { loss.backward(); });
    EXPECT_TRUE(says(error, "on rank 1: parameter \"0.weight\" is no longer in shared memory")) << error;
  });
  run_training(2, "shm", [](const ProcessGroup& group) {
    SharedModel ddp = make_shared_model(group);
    ShardedOptimizer<optim::SGD> optimizer(ddp, optim::SGDOptions(1));
    for (int step = 0; step < 2; ++step) {
      if (step == 1) {
        const torch::NoGradGuard no_grad;
        ddp.parameters()[2].mul_(2);
      }
      const at::Tensor loss = shared_loss(ddp, group, 0);
      const std::string error = usage_error_of([&] { loss.backward(); });
      EXPECT_EQ(says(error, "parameter \"2.weight\" was written by the program"), step == 1) << error;
      if (step == 0) optimizer.step();
    }
  });
}

/// Rank 0 makes the memory. Where it can't, the others don't wait for it, and the group is as it was.
TEST(SharedParameters, ThatNeedMoreThanTheMemoryAreRefusedOnAllRanks) {
  run_ranks(3,
            [](const JobGroup& members) {
              const ProcessGroup group = init_process_group(members);
              nn::Sequential large(nn::Linear(1, 32 << 20));
              std::string error;
              bool is_exhausted = false;
              try {
                SharedModel(large, group, {.share_parameters = true});
              } catch (const SharedMemoryExhausted&) {
                is_exhausted = true;
              } catch (const UsageError& caught) {
                error = caught.what();
              }
              EXPECT_EQ(is_exhausted, group->getRank() == 0);
              if (group->getRank() != 0) {
                EXPECT_TRUE(says(error, "DistributedDataParallel: cannot share ") && says(error, " bytes: rank 0: "))
                    << error;
              }
              const at::Tensor sum = torch::ones({2});
              all_reduce(sum, group);
              EXPECT_TRUE(sum.eq(3).all().item<bool>());
            },
            {.memory_bytes = std::size_t{128} << 20});
}

/// A rank that dies in the midst of a step leaves the others the parameters of the last whole one.
TEST(SharedParameters, AreThoseOfTheLastWholeStepWhenARankDies) {
  for (int round = 0; round < 12; ++round)
    run_ranks(3,
              [&](const JobGroup& members) {
                at::set_num_threads(1);
                const ProcessGroup group = init_process_group(members);
                const auto make = [] { return nn::Sequential(nn::Linear(512, 512), nn::Tanh(), nn::Linear(512, 8)); };
                SharedModel ddp(seeded(4, make), group, {.share_parameters = true});
                ShardedOptimizer<optim::AdamW> optimizer(ddp, optim::AdamWOptions(0.01));
                std::vector<at::Tensor> before;
                for (int step = 0;; ++step) {
                  before.clear();
                  for (const at::Tensor& parameter : ddp.parameters()) before.push_back(parameter.detach().clone());
                  barrier(group);
                  ddp(torch::ones({1, 512}) * (1 + members.rank)).sum().backward();
                  if (step == 1 && members.rank == 1) {
                    // Killed by a timer at another place of the step in each round.
                    timer_t timer{};
                    sigevent event{};
                    event.sigev_notify = SIGEV_SIGNAL;
                    event.sigev_signo = SIGKILL;
                    timer_create(CLOCK_MONOTONIC, &event, &timer);
                    const itimerspec when{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = 1 + round * 40'000}};
                    timer_settime(timer, 0, &when, nullptr);
                  }
                  try {
                    optimizer.step();
                    if (step == 1) barrier(group);  // The killed rank may have completed its step.
                    if (step == 1 && members.rank == 1) pause();
                  } catch (const PeerLost&) {
                    break;
                  }
                  if (step == 1) before.clear();
                  if (step == 1) break;
                }
                bool is_old = true, is_new = true;
                for (std::size_t i = 0; i < before.size(); ++i) {
                  const at::Tensor now = ddp.parameters()[i].detach();
                  is_old &= now.equal(before[i]);
                  is_new &= !now.equal(before[i]);
                }
                EXPECT_TRUE(is_old || is_new) << "round " << round;
              },
              {.killed = {1}});
}

/// The gradients of one backward, and of one process alone.
void expect_step_of_all(nn::Sequential& alone, SharedModel& ddp, const ProcessGroup& group,
                        const std::function<at::Tensor(int rank)>& input_of) {
  optim::SGD optimizer_alone(alone->parameters(), 0.1);
  optimizer_alone.zero_grad();
  for (int rank = 0; rank < group->getSize(); ++rank)
    (alone->forward(input_of(rank)).square().mean() / group->getSize()).backward();
  optimizer_alone.step();
  for (std::size_t i = 0; i < alone->parameters().size(); ++i)
    EXPECT_TRUE(torch::allclose(ddp.parameters()[i], alone->parameters()[i], 1e-4, 1e-6)) << "parameter " << i;
}

/// Something else may have the place in job memory that a gradient fits into.
TEST(SharedParameters, AreUpdatedByGradientsThatFindNoSlot) {
  run_training(2, "shm", [](const ProcessGroup& group) {
    const auto make = [] { return nn::Sequential(nn::Linear(nn::LinearOptions(128, 128).bias(false))); };
    nn::Sequential alone = seeded(4, make);
    SharedModel ddp(seeded(4, make), group, {.share_parameters = true});
    ShardedOptimizer<optim::SGD> optimizer(ddp, optim::SGDOptions(0.1));
    std::vector<at::Tensor> kept;
    for (int step = 0; step < 3; ++step) {
      const auto input_of = [&](int rank) {
        return test::random_numbers(static_cast<unsigned>(2 * step + rank), {128, 128}).to(torch::kFloat);
      };
      kept.push_back(ddp(input_of(group->getRank())));
      kept.back().retain_grad();  // As large as the weight's.
      kept.back().square().mean().backward();
      optimizer.step();
      expect_step_of_all(alone, ddp, group, input_of);
    }
  });
}

/// The failed backward was the first one that had its gradients where they are from then on.
TEST(SharedParameters, AreUpdatedAfterABackwardThatFailed) {
  run_training(2, "shm", [](const ProcessGroup& group) {
    const auto make = [] { return nn::Sequential(nn::Linear(6, 16), nn::Tanh(), nn::Linear(16, 3)); };
    nn::Sequential alone = seeded(4, make);
    SharedModel ddp(seeded(4, make), group, {.check_gradients = true, .share_parameters = true});
    ShardedOptimizer<optim::SGD> optimizer(ddp, optim::SGDOptions(0.1));
    EXPECT_TRUE(says(usage_error_of([&] { (shared_loss(ddp, group, 0) * NAN).backward(); }), "has NaN in it"));
    optimizer.zero_grad();
    shared_loss(ddp, group, 1).backward();
    optimizer.step();
    expect_step_of_all(alone, ddp, group, [&](int rank) { return part_of(1, group, rank); });
  });
}

TEST(SharedParameters, TakeNoMoreMemoryByAndBy) {
  run_training(2, "shm", [](const ProcessGroup& group) {
    SharedModel ddp = make_shared_model(group);
    ShardedOptimizer<optim::AdamW> optimizer(ddp, optim::AdamWOptions(0.001));
    const auto resident = [] {
      rusage usage{};
      getrusage(RUSAGE_SELF, &usage);
      return usage.ru_maxrss;
    };
    const auto train = [&](int steps) {
      for (int step = 0; step < steps; ++step) {
        shared_loss(ddp, group, step % 8).backward();
        optimizer.step();
      }
    };
    train(500);
    const long before = resident();
    train(2000);
    EXPECT_LT(resident() - before, 4096);  // KiB
  });
}

}  // namespace
}  // namespace retinue
