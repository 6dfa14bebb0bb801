// What DistributedDataParallel makes of modules: that the ranks' are the same, parameters that several have, wrapped
// parts.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/groups.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "torch/trained_net.h"

namespace retinue {
namespace {

namespace nn = torch::nn;
using test::joined_batch;
using test::kBatch;
using test::part_of;
using test::run_ranks;
using test::run_training;
using test::says;
using test::seeded;
using test::usage_error_of;

class DataParallelModules : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, DataParallelModules, testing::Values("shm", "gloo"));

TEST_P(DataParallelModules, NamesTheFirstDifferenceOfTheRanksModules) {
  using Make = std::function<nn::Sequential()>;
  const Make two = [] { return nn::Sequential(nn::Linear(2, 2), nn::Linear(2, 2)); };
  const Make frozen = [&] {
    nn::Sequential net = two();
    net->parameters()[2].requires_grad_(false);
    return net;
  };
  const Make strided = [&] {
    nn::Sequential net = two();
    net->parameters()[2].set_data(torch::zeros({2, 2}).t());
    return net;
  };
  const Make mixed = [&] {
    nn::Sequential net = two();
    net->at<nn::LinearImpl>(1).to(torch::kDouble);
    return net;
  };
  const std::string first =
      "rank 0 has parameter \"1.weight\" of type Float and shape [2, 2], which requires a gradient";
  const std::pair<Make, std::string> cases[] = {
      {[] { return nn::Sequential(nn::Linear(2, 2), nn::Linear(2, 5)); },
       first + ", but rank 1 has parameter \"1.weight\" of type Float and shape [5, 2], which requires a gradient"},
      {mixed, first + ", but rank 1 has parameter \"1.weight\" of type Double and shape [2, 2]"},
      {frozen, first + ", but rank 1 has parameter \"1.weight\" of type Float and shape [2, 2] (2 ranks differ there)"},
      {strided, first + ", but rank 1 has parameter \"1.weight\" of type Float and shape [2, 2] with strides [1, 2]"},
      // Equal shapes in another order.
      {[] { return nn::Sequential(nn::Linear(2, 2), nn::Tanh(), nn::Linear(2, 2)); },
       first + ", but rank 1 has parameter \"2.weight\""},
      {[] { return nn::Sequential(nn::Linear(2, 2)); },
       first + ", but rank 1 has nothing after 2 parameters and buffers"},
      {[] { return nn::Sequential(nn::Linear(2, 2), nn::Linear(2, 2), nn::BatchNorm1d(2)); },
       "rank 0 has nothing after 4 parameters and buffers, but rank 1 has parameter \"2.weight\""},
      {[] { return nn::Sequential(nn::Tanh()); }, "but rank 1 has nothing after 0 parameters and buffers"},
  };
  run_ranks(3, [&](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    for (const auto& [make, expected] : cases) {
      const std::string text =
          usage_error_of([&] { DistributedDataParallel((members.rank == 0 ? two : make)(), group); });
      EXPECT_TRUE(says(text, expected)) << text;
    }
    const std::string text =
        usage_error_of([&] { DistributedDataParallel((members.rank == 2 ? mixed : two)(), group); });
    EXPECT_TRUE(says(text, ", but rank 2 has parameter \"1.weight\" of type Double")) << text;
    EXPECT_NO_THROW(DistributedDataParallel(two(), group)) << "the group is usable";
  });
}

struct TwiceImpl : nn::Module {
  TwiceImpl() : layer(register_module("layer", nn::Linear(6, 6))) { register_module("again", layer); }
  at::Tensor forward(const at::Tensor& input) { return layer(torch::tanh(layer(input))); }
  nn::Linear layer;
};
TORCH_MODULE(Twice);

TEST_P(DataParallelModules, ParametersListsEachOnce) {
  run_ranks(2, [](const JobGroup& members) {
    at::set_num_threads(1);
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    DistributedDataParallel ddp(seeded(2, [] { return Twice(); }), group);
    EXPECT_EQ(ddp->parameters().size(), 4u);
    ASSERT_EQ(ddp.parameters().size(), 2u);
    EXPECT_EQ(ddp.named_parameters().keys(), (std::vector<std::string>{"layer.weight", "layer.bias"}));
    EXPECT_TRUE(ddp.named_parameters()["layer.bias"].is_same(ddp->layer->bias));
    const at::Tensor before = ddp->layer->weight.detach().clone();
    torch::optim::SGD optimizer(ddp.parameters(), 0.5);
    ddp(joined_batch(0, 2, {6}).first.narrow(0, kBatch * members.rank, kBatch)).sum().backward();
    optimizer.step();
    EXPECT_TRUE(torch::allclose(ddp->layer->weight, before - 0.5 * ddp->layer->weight.grad()));
  });
}

/// A part of it is wrapped itself.
struct NestedImpl : nn::Module {
  NestedImpl()
      : first(register_module("first", nn::Linear(6, 8))),
        second(register_module("second", nn::Linear(8, 8))),
        third(register_module("third", nn::Linear(8, 3))) {}
  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor hidden = torch::tanh(first(input));
    return third(torch::tanh(inner ? (*inner)(hidden) : second(hidden)));
  }
  nn::Linear first, second, third;
  std::unique_ptr<DistributedDataParallel<nn::Linear>> inner;
};
TORCH_MODULE(Nested);

TEST_P(DataParallelModules, NestedWrappersAverageOnce) {
  for (const int ranks : {1, 2, 3})
    for (const bool find_unused_parameters : {false, true})
      run_training(ranks, GetParam(), [&](const ProcessGroup& group) {
        Nested alone = seeded(8, [] { return Nested(); });
        Nested net = seeded(8, [] { return Nested(); });
        const DistributedDataParallelOptions options{.find_unused_parameters = find_unused_parameters};
        net->inner = std::make_unique<DistributedDataParallel<nn::Linear>>(net->second, group, options);
        DistributedDataParallel ddp(net, group, options);
        for (int step = 0; step < 3; ++step) {
          ddp->zero_grad();
          alone->zero_grad();
          ddp(part_of(step, group, group->getRank())).square().sum().backward();
          for (int rank = 0; rank < group->getSize(); ++rank)
            (alone(part_of(step, group, rank)).square().sum() / group->getSize()).backward();
          if (step == 1) {  // The outer one alone.
            const auto without = net->inner->no_sync();
            ddp->zero_grad();
            ddp(part_of(step, group, group->getRank())).square().sum().backward();
          }
          for (std::size_t i = 0; i < 6; ++i)
            EXPECT_TRUE(torch::allclose(net->parameters()[i].grad(), alone->parameters()[i].grad(), 1e-4, 1e-5))
                << "step " << step << " parameter " << i;
        }
      });
}

TEST_P(DataParallelModules, NestedWrappersOfTwoGroupsAreRefused) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    Nested net;
    net->inner = std::make_unique<DistributedDataParallel<nn::Linear>>(net->second, new_group({0, 1}, group));
    DistributedDataParallel ddp(net, group);
    const std::string text =
        usage_error_of([&] { ddp(part_of(0, group, group->getRank())).square().sum().backward(); });
    EXPECT_TRUE(says(text, "belongs to two DistributedDataParallel modules of different groups")) << text;
  });
}

}  // namespace
}  // namespace retinue
