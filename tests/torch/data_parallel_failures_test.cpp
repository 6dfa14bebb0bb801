// What one rank does wrong in a training, and what all ranks are told.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cmath>
#include <stdexcept>
#include <string>

#include "retinue/base/error.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/sharded_optimizer.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "torch/calls_in_backward.h"
#include "torch/trained_net.h"

namespace retinue {
namespace {

namespace nn = torch::nn;
using test::CallsInBackward;
using test::make_mlp;
using test::part_of;
using test::run_training;
using test::says;
using test::seeded;
using test::usage_error_of;

class DataParallelFailures : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, DataParallelFailures, testing::Values("shm", "gloo"));

TEST_P(DataParallelFailures, OfAParameterFrozenLaterNameItAndTheRank) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    nn::Sequential net = make_mlp();
    DistributedDataParallel ddp(net, group);
    const auto loss_of = [&](int step) { return ddp(part_of(step, group, group->getRank())).square().sum(); };
    loss_of(0).backward();
    if (group->getRank() == 1) net->parameters()[3].requires_grad_(false);
    const std::string text = usage_error_of([&] { loss_of(1).backward(); });
    EXPECT_TRUE(says(text, "on rank 1: parameter \"2.bias\" got no gradient")) << text;
    net->parameters()[3].requires_grad_(true);
    ddp->zero_grad();
    EXPECT_NO_THROW(loss_of(2).backward());
  });
}

/// A rank that throws leaves; the others are told which one, in the backward that they are in.
TEST_P(DataParallelFailures, OfARankThatThrowsAreToldToTheOthers) {
  for (const bool in_backward : {false, true})
    run_training(3, GetParam(), [&](const ProcessGroup& group) {
      DistributedDataParallel ddp(make_mlp(), group);
      CallsInBackward::call = [] { throw std::runtime_error("thrown by the program"); };
      const auto make_step = [&](int step) {
        const bool throws = step == 2 && group->getRank() == 1;
        if (throws && !in_backward) throw std::runtime_error("thrown by the program");
        at::Tensor output = ddp(part_of(step, group, group->getRank()));
        if (throws) output = CallsInBackward::apply(output);
        output.square().sum().backward();
      };
      make_step(0);
      make_step(1);
      if (group->getRank() == 1) {
        EXPECT_THROW(make_step(2), std::runtime_error);
        return;
      }
      try {
        make_step(2);
        ADD_FAILURE() << "nothing was thrown";
      } catch (const PeerLost& lost) {
        EXPECT_TRUE(says(lost.what(), "rank 1")) << lost.what();
      }
    });
}

/// A rank that goes on after an exception in forward has skipped a step: it is as if it had fewer inputs.
TEST_P(DataParallelFailures, ThatAllRanksCatchMayBeFollowedByFurtherSteps) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    DistributedDataParallel ddp(make_mlp(), group);
    CallsInBackward::call = [] { throw std::runtime_error("thrown by the program"); };
    const auto loss_of = [&](int step) { return ddp(part_of(step, group, group->getRank())).square().sum(); };
    loss_of(0).backward();
    EXPECT_THROW(CallsInBackward::apply(loss_of(1)).backward(), std::runtime_error);
    ddp->zero_grad();
    loss_of(2).backward();
    const at::Tensor averaged = ddp->parameters()[0].grad().clone();
    broadcast(averaged, group);
    EXPECT_TRUE(averaged.equal(ddp->parameters()[0].grad()));
    EXPECT_GT(averaged.abs().sum().item<double>(), 0);
  });
}

/// The parameters that only the failed backward reached have no gradient in the next one, and are not updated.
TEST_P(DataParallelFailures, OfABackwardLeaveNoZerosBehind) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    nn::Sequential net = make_mlp();
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true, .check_gradients = true});
    const at::Tensor input = part_of(0, group, group->getRank());
    EXPECT_TRUE(says(usage_error_of([&] { (ddp(input) * NAN).sum().backward(); }), "has NaN in it"));
    net->zero_grad();
    net[0]->as<nn::Linear>()->forward(input).sum().backward();
    EXPECT_TRUE(net->parameters()[0].grad().defined());
    EXPECT_FALSE(net->parameters()[2].grad().defined());
  });
}

/// A fork of a rank has the module and its gradients, which lie in shared memory.
TEST(DataParallelFork, DoesNotAddToTheGradientsOfItsParent) {
  for (const bool is_shared : {false, true})
    run_training(2, "shm", [&](const ProcessGroup& group) {
      DistributedDataParallel ddp(seeded(4, [] { return make_mlp(); }), group, {.share_parameters = is_shared});
      ShardedOptimizer<torch::optim::SGD> optimizer(ddp, torch::optim::SGDOptions(0.1));
      torch::nn::Sequential alone = seeded(4, [] { return make_mlp(); });
      torch::optim::SGD optimizer_alone(alone->parameters(), 0.1);
      ddp(part_of(0, group, group->getRank())).square().mean().backward();
      const pid_t child = fork();
      if (child == 0) {
        try {
          ddp(part_of(1, group, 0)).square().mean().backward();
        } catch (const UsageError& error) {
          _exit(says(error.what(), "fork()") ? 0 : 1);
        }
        _exit(2);
      }
      int status = -1;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
      barrier(group);
      optimizer.step();
      for (int rank = 0; rank < group->getSize(); ++rank)
        (alone->forward(part_of(0, group, rank)).square().mean() / group->getSize()).backward();
      optimizer_alone.step();
      for (std::size_t i = 0; i < alone->parameters().size(); ++i)
        EXPECT_TRUE(torch::allclose(ddp.parameters()[i], alone->parameters()[i], 1e-4, 1e-6)) << "parameter " << i;
    });
}

}  // namespace
}  // namespace retinue
