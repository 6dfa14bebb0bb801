#include <gtest/gtest.h>
#include <torch/torch.h>

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "support/ranks.h"
#include "support/usage_error.h"
#include "torch/trained_net.h"

namespace retinue {
namespace {

namespace nn = torch::nn;
using test::joined_batch;
using test::kBatch;
using test::make_mlp;
using test::run_ranks;
using test::seeded;

at::Tensor flat_parameters(const nn::Module& module) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& parameter : module.parameters()) parts.push_back(parameter.detach().flatten());
  return torch::cat(parts);
}

void expect_equal_on_all_ranks(const nn::Module& module, const ProcessGroup& group) {
  const at::Tensor mine = flat_parameters(module);
  const at::Tensor all = torch::empty({group->getSize(), mine.numel()});
  all_gather(all.unbind(0), mine, group);
  for (int rank = 0; rank < group->getSize(); ++rank) EXPECT_TRUE(torch::equal(all[rank], mine)) << "rank " << rank;
}

void expect_close(const nn::Module& trained, const nn::Module& reference) {
  const at::Tensor difference = (flat_parameters(trained) - flat_parameters(reference)).abs().max();
  EXPECT_LE(difference.item<float>(), 1e-6f);
}

torch::optim::SGD make_optimizer(const nn::Module& module) {
  return torch::optim::SGD(module.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
}

/// Trains a module as DDP, and an equal one alone on the joined batch, and compares.
void train_both(const JobGroup& members, DistributedDataParallelOptions options, std::int64_t hidden, int steps,
                const char* backend) {
  at::set_num_threads(1);
  const ProcessGroup group = init_process_group(members, {.backend = backend});
  const bool shares_gradients = backend == std::string("shm");
  const int ranks = group->getSize();
  const auto seed_of_rank = static_cast<std::uint64_t>(5 + members.rank);  // only rank 0's values may matter
  DistributedDataParallel ddp(seeded(seed_of_rank, [&] { return make_mlp(hidden); }), group, options);
  nn::Sequential reference = seeded(5, [&] { return make_mlp(hidden); });
  expect_close(ddp.module(), *reference);
  auto optimizer = make_optimizer(ddp.module());
  auto reference_optimizer = make_optimizer(*reference);
  for (int step = 0; step < steps; ++step) {
    const auto [inputs, labels] = joined_batch(step, ranks, {6});
    const std::int64_t begin = kBatch * members.rank;
    optimizer.zero_grad();
    nn::functional::cross_entropy(ddp(inputs.narrow(0, begin, kBatch)), labels.narrow(0, begin, kBatch)).backward();
    for (const at::Tensor& parameter : ddp->parameters())
      EXPECT_EQ(members.memory->contains(parameter.grad().data_ptr()), shares_gradients) << "step " << step;
    optimizer.step();
    reference_optimizer.zero_grad();
    nn::functional::cross_entropy(reference->forward(inputs), labels).backward();
    reference_optimizer.step();
  }
  expect_close(ddp.module(), *reference);
  expect_equal_on_all_ranks(ddp.module(), group);
}

class DataParallel : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, DataParallel, testing::Values("shm", "gloo"));

TEST_P(DataParallel, TwoRanksTrainAsOneProcess) {
  run_ranks(2, [](const JobGroup& members) { train_both(members, {}, 16, 8, GetParam()); });
}

TEST_P(DataParallel, ThreeRanksTrainAsOneProcess) {
  run_ranks(3, [](const JobGroup& members) { train_both(members, {}, 16, 8, GetParam()); });
}

TEST_P(DataParallel, SeveralBuckets) {
  run_ranks(2, [](const JobGroup& members) { train_both(members, {.bucket_cap_mb = 1}, 700, 4, GetParam()); });
}

TEST_P(DataParallel, FindsUnusedParametersWhereAllAreUsed) {
  run_ranks(2,
            [](const JobGroup& members) { train_both(members, {.find_unused_parameters = true}, 16, 5, GetParam()); });
}

struct EitherHeadImpl : nn::Module {
  EitherHeadImpl()
      : body(register_module("body", nn::Linear(6, 8))),
        first(register_module("first", nn::Linear(8, 3))),
        second(register_module("second", nn::Linear(8, 3))) {}

  at::Tensor forward(const at::Tensor& input, int head) {
    const at::Tensor hidden = torch::tanh(body(input));
    return head == 0 ? first(hidden) : second(hidden);
  }

  nn::Linear body, first, second;
};
TORCH_MODULE(EitherHead);

TEST_P(DataParallel, RanksMayUseDifferentParameters) {
  run_ranks(2, [](const JobGroup& members) {
    at::set_num_threads(1);
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    DistributedDataParallel ddp(seeded(1, [] { return EitherHead(); }), group, {.find_unused_parameters = true});
    EitherHead reference = seeded(1, [] { return EitherHead(); });
    auto optimizer = make_optimizer(ddp.module());
    auto reference_optimizer = make_optimizer(*reference);
    for (int step = 0; step < 6; ++step) {
      const auto [inputs, labels] = joined_batch(step, 2, {6});
      // Steps 0, 3: nobody uses the second head. Steps 1, 4: nobody uses the first. Steps 2, 5: each rank its own.
      const auto head_of = [step](int rank) { return step % 3 == 2 ? rank : step % 3; };
      const auto loss_of = [&](auto& net, int rank) {
        const auto begin = kBatch * rank;
        return nn::functional::cross_entropy(net->forward(inputs.narrow(0, begin, kBatch), head_of(rank)),
                                             labels.narrow(0, begin, kBatch));
      };
      optimizer.zero_grad();
      const auto begin = kBatch * members.rank;
      nn::functional::cross_entropy(ddp(inputs.narrow(0, begin, kBatch), head_of(members.rank)),
                                    labels.narrow(0, begin, kBatch))
          .backward();
      optimizer.step();
      reference_optimizer.zero_grad();
      ((loss_of(reference, 0) + loss_of(reference, 1)) / 2).backward();
      EXPECT_EQ(ddp->first->weight.grad().defined(), reference->first->weight.grad().defined()) << "step " << step;
      reference_optimizer.step();
    }
    expect_close(ddp.module(), *reference);
    expect_equal_on_all_ranks(ddp.module(), group);
  });
}

struct BothHeads : EitherHeadImpl {
  std::tuple<at::Tensor, std::vector<at::Tensor>> forward(const at::Tensor& input) {
    const at::Tensor hidden = torch::tanh(body(input));
    return {first(hidden), {second(hidden)}};
  }
};

TEST_P(DataParallel, TheLossMayIgnoreAnOutput) {
  run_ranks(2, [](const JobGroup& members) {
    at::set_num_threads(1);
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    DistributedDataParallel ddp(std::make_shared<BothHeads>(), group, {.find_unused_parameters = true});
    for (int step = 0; step < 3; ++step) {
      ddp->zero_grad();
      const auto outputs = ddp(joined_batch(step, 2, {6}).first.narrow(0, kBatch * members.rank, kBatch));
      (step == 1 ? std::get<1>(outputs)[0] : std::get<0>(outputs)).sum().backward();
      at::Tensor sum = ddp->body->weight.grad().clone();
      all_reduce(sum, group, {.op = c10d::ReduceOp::AVG});
      EXPECT_TRUE(torch::allclose(sum, ddp->body->weight.grad())) << "step " << step;
    }
  });
}

TEST_P(DataParallel, BuffersAreThoseOfRank0) {
  run_ranks(2, [](const JobGroup& members) {
    at::set_num_threads(1);
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    nn::Sequential net(nn::Conv2d(1, 4, 3), nn::BatchNorm2d(4), nn::ReLU(), nn::Flatten(), nn::Linear(4 * 6 * 6, 3));
    DistributedDataParallel ddp(net, group);
    auto optimizer = make_optimizer(ddp.module());
    for (int step = 0; step < 4; ++step) {
      const auto [inputs, labels] = joined_batch(step, 2, {1, 8, 8});
      const auto begin = kBatch * members.rank;
      optimizer.zero_grad();
      nn::functional::cross_entropy(ddp(inputs.narrow(0, begin, kBatch)), labels.narrow(0, begin, kBatch)).backward();
      optimizer.step();
    }
    expect_equal_on_all_ranks(ddp.module(), group);
    at::Tensor mean = net->named_buffers()["1.running_mean"];
    EXPECT_EQ(net->named_buffers()["1.num_batches_tracked"].item<std::int64_t>(), 4);
    std::vector<at::Tensor> all = {torch::empty({4}), torch::empty({4})};
    all_gather(all, mean, group);
    EXPECT_TRUE(torch::equal(all[0], all[1])) << "each rank saw its own batch";
    ddp->eval();
    const torch::NoGradGuard no_grad;
    if (members.rank == 0) ddp(torch::ones({1, 1, 8, 8}));  // Needs no other rank.
  });
}

TEST_P(DataParallel, NoSyncAccumulatesOnThisRankOnly) {
  run_ranks(2, [](const JobGroup& members) {
    at::set_num_threads(1);
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    DistributedDataParallel ddp(seeded(3, [] { return make_mlp(); }), group);
    nn::Sequential reference = seeded(3, [] { return make_mlp(); });
    const auto part = [&](int step, int rank) {
      return joined_batch(step, 2, {6}).first.narrow(0, kBatch * rank, kBatch);
    };
    for (int round = 0; round < 3; ++round) {
      ddp->zero_grad();
      reference->zero_grad();
      {
        const auto guard = ddp.no_sync();
        ddp(part(2 * round, members.rank)).sum().backward();
      }
      ddp(part(2 * round + 1, members.rank)).sum().backward();
      for (const int rank : {0, 1}) {
        for (const int half : {0, 1}) (reference->forward(part(2 * round + half, rank)).sum() / 2).backward();
      }
      const auto trained = ddp->parameters();
      const auto expected = reference->parameters();
      for (std::size_t i = 0; i < trained.size(); ++i)
        EXPECT_TRUE(torch::allclose(trained[i].grad(), expected[i].grad(), 1e-5, 1e-5)) << "parameter " << i;
    }
  });
}

TEST_P(DataParallel, GradientsOutliveEveryWayOfClearingThem) {
  run_ranks(2, [](const JobGroup& members) {
    at::set_num_threads(1);
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    DistributedDataParallel ddp(seeded(3, [] { return make_mlp(); }), group);
    auto optimizer = make_optimizer(ddp.module());
    const at::Tensor input = joined_batch(0, 2, {6}).first.narrow(0, kBatch * members.rank, kBatch);
    at::Tensor first;
    for (int step = 0; step < 6; ++step) {
      const at::Tensor loss = ddp(input).sum();
      if (step % 3 == 0) optimizer.zero_grad(/*set_to_none=*/false);
      if (step % 3 == 1) optimizer.zero_grad(/*set_to_none=*/true);
      if (step % 3 == 2) ddp->zero_grad();
      loss.backward();
      nn::utils::clip_grad_norm_(ddp->parameters(), 1e9);
      const at::Tensor gradient = ddp->parameters()[0].grad().clone();
      if (step == 0) first = gradient;
      EXPECT_TRUE(torch::allclose(gradient, first)) << "step " << step;
    }
  });
}

TEST(ShmDataParallel, WrapsEveryKindOfModule) {
  const ProcessGroup alone = init_process_group();
  const at::Tensor input = torch::ones({2, 6});
  DistributedDataParallel holder(EitherHead(), alone);
  static_assert(std::is_same_v<decltype(holder)::Module, EitherHeadImpl>);
  EXPECT_EQ(holder(input, 0).size(1), 3);
  DistributedDataParallel pointer(std::make_shared<EitherHeadImpl>(), alone, {.find_unused_parameters = true});
  pointer(input, 1).sum().backward();
  EXPECT_TRUE(pointer->second->weight.grad().defined());
  DistributedDataParallel value(EitherHeadImpl(), alone);
  EXPECT_EQ(value->parameters().size(), 6u);
  EXPECT_EQ(value.forward(input, 0).size(1), 3);
  EXPECT_EQ(value.ptr().get(), &value.module());
  EXPECT_EQ(value.group()->getSize(), 1);
}

TEST(ShmDataParallel, RefusesModulesThatItCannotTrain) {
  const ProcessGroup alone = init_process_group();
  EXPECT_THROW(DistributedDataParallel(nn::Sequential(nn::Tanh()), alone), UsageError);
  EXPECT_THROW(DistributedDataParallel(nn::Linear(2, 2), ProcessGroup()), UsageError);
  EXPECT_THROW(DistributedDataParallel(nn::Linear(2, 2), alone, {.bucket_cap_mb = 0}), UsageError);
}

TEST_P(DataParallel, BatchNormTakesTwoForwardsBeforeOneBackward) {
  run_ranks(2, [](const JobGroup& members) {
    at::set_num_threads(1);
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    const auto make = [] { return nn::Sequential(nn::Linear(6, 4), nn::BatchNorm1d(4), nn::Linear(4, 3)); };
    nn::Sequential alone = seeded(4, make);
    DistributedDataParallel ddp(seeded(4, make), group);
    for (int step = 0; step < 3; ++step) {
      ddp->zero_grad();
      alone->zero_grad();
      const auto loss_of = [&](auto& net, int rank) {
        const auto part = [&](int batch) { return test::part_of(batch, group, rank); };
        return net(part(2 * step)).square().sum() + net(part(2 * step + 1)).square().sum();
      };
      const auto forward = [&](const at::Tensor& input) { return alone->forward(input); };
      loss_of(ddp, members.rank).backward();
      for (int rank = 0; rank < 2; ++rank) loss_of(forward, rank).backward();
      for (std::size_t i = 0; i < alone->parameters().size(); ++i)
        EXPECT_TRUE(torch::allclose(ddp.parameters()[i].grad(), alone->parameters()[i].grad() / 2, 1e-4, 1e-5))
            << "step " << step << " parameter " << i;
    }
  });
}

TEST(ShmDataParallel, BackwardThrowsWhenARankDies) {
  run_ranks(2,
            [](const JobGroup& members) {
              at::set_num_threads(1);
              const ProcessGroup group = init_process_group(members);
              DistributedDataParallel ddp(make_mlp(), group);
              for (int step = 0; step < 3; ++step) {
                const at::Tensor loss = ddp(torch::ones({2, 6})).sum();
                if (step == 2 && members.rank == 1) raise(SIGKILL);
                if (step == 2)
                  EXPECT_THROW(loss.backward(), PeerLost);
                else
                  loss.backward();
              }
            },
            {.killed = {1}});
}

}  // namespace
}  // namespace retinue
