// What DistributedDataParallel does when the module's parameters change after it was wrapped.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/state_dict.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "torch/trained_net.h"

namespace retinue {
namespace {

namespace nn = torch::nn;
using test::make_mlp;
using test::part_of;
using test::run_training;
using test::says;
using test::usage_error_of;

class DataParallelChanges : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, DataParallelChanges, testing::Values("shm", "gloo"));

struct GrowingImpl : nn::Module {
  at::Tensor forward(const at::Tensor& input) {
    at::Tensor output = head(body->forward(input));
    if (scale.defined()) output = output * scale;
    return tail ? tail(output) : output;
  }

  nn::Sequential body = register_module("body", nn::Sequential(nn::Linear(6, 8)));
  nn::Linear head = register_module("head", nn::Linear(8, 3));
  nn::Linear tail{nullptr};
  at::Tensor scale;
};
TORCH_MODULE(Growing);

struct Change {
  std::function<void(GrowingImpl&)> make;
  std::string found;  ///< What the error says.
};

void add_tail(GrowingImpl& net) {
  net.tail = net.register_module("tail", nn::Linear(3, 3));
}

std::vector<Change> changes() {
  const std::string gone = " was replaced in the module, or removed from it, after DistributedDataParallel was made";
  const std::string added = " was added to the module after DistributedDataParallel was made";
  return {{add_tail, "\"tail.weight\" (and 1 more)" + added},
          {[](GrowingImpl& net) { net.body->push_back(nn::Linear(8, 8)); }, "\"body.1.weight\" (and 1 more)" + added},
          {[](GrowingImpl& net) { net.scale = net.register_parameter("scale", torch::ones(3)); }, "\"scale\"" + added},
          {[](GrowingImpl& net) { net.head = net.replace_module("head", nn::Linear(8, 3)); },
           "\"head.weight\" (and 1 more)" + gone},
          {[](GrowingImpl& net) { net.unregister_module("head"); }, "\"head.weight\" (and 1 more)" + gone}};
}

TEST_P(DataParallelChanges, ByRegisteringAreRefusedOnAllRanks) {
  for (const int ranks : {1, 2})
    run_training(ranks, GetParam(), [](const ProcessGroup& group) {
      const int last = group->getSize() - 1;
      const at::Tensor input = part_of(0, group, group->getRank());
      for (const bool find_unused : {false, true})
        for (const bool by_wrapper : {false, true})
          for (const Change& change : changes()) {
            DistributedDataParallel ddp(Growing(), group, {.find_unused_parameters = find_unused});
            ddp(input).sum().backward();
            if (group->getRank() == last) change.make(ddp.module());
            const at::Tensor loss = (by_wrapper ? ddp(input) : ddp->forward(input)).sum();
            const std::string text = usage_error_of([&] { loss.backward(); });
            EXPECT_TRUE(says(text, "on rank " + std::to_string(last) + ": parameter " + change.found)) << text;
            EXPECT_TRUE(says(text, "or wrap the module again")) << text;
          }
    });
}

TEST_P(DataParallelChanges, AreAveragedOnceTheModuleIsWrappedAgain) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    for (const Change& change : changes()) {
      Growing net;
      DistributedDataParallel ddp(net, group);
      const auto backward = [&] { ddp(part_of(0, group, group->getRank())).square().sum().backward(); };
      backward();
      change.make(*net);
      EXPECT_TRUE(says(usage_error_of(backward), change.found));
      ddp = DistributedDataParallel(net, group);
      net->zero_grad();
      {
        const auto alone = ddp.no_sync();
        backward();
      }
      std::vector<at::Tensor> expected;
      for (const at::Tensor& parameter : net->parameters()) expected.push_back(parameter.grad().clone());
      net->zero_grad();
      backward();
      for (std::size_t i = 0; i < expected.size(); ++i) {
        all_reduce(expected[i], group);
        EXPECT_TRUE(torch::allclose(net->parameters()[i].grad(), expected[i] / 2, 1e-4, 1e-5)) << change.found;
      }
    }
  });
}

/// Also where one of them is never called: its hooks are the module's.
TEST_P(DataParallelChanges, MayLeaveAnEarlierWrapperAlive) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    Growing net;
    DistributedDataParallel ddp(net, group);
    const auto expect_averaged = [&](auto& wrapper) {
      const at::Tensor input = part_of(0, group, group->getRank());
      {
        const auto alone = ddp.no_sync();
        const auto none = wrapper.no_sync();
        net->zero_grad();
        wrapper(input).sum().backward();
      }
      at::Tensor expected = net->body->parameters()[0].grad().clone();
      all_reduce(expected, group);
      net->zero_grad();
      wrapper(input).sum().backward();
      EXPECT_TRUE(torch::allclose(net->body->parameters()[0].grad(), expected / 2, 1e-4, 1e-5));
    };
    {
      DistributedDataParallel second(net, group);
      expect_averaged(second);
      expect_averaged(ddp);
    }
    expect_averaged(ddp);
  });
}

TEST_P(DataParallelChanges, AreFoundWhereBackwardReachesNoOtherParameter) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    Growing net;
    for (const at::Tensor& parameter : net->body->parameters()) parameter.set_requires_grad(false);
    DistributedDataParallel ddp(net, group);
    net->head = net->replace_module("head", nn::Linear(8, 3));
    const auto backward = [&] { ddp(part_of(0, group, group->getRank())).sum().backward(); };
    EXPECT_TRUE(says(usage_error_of(backward), "parameter \"head.weight\" (and 1 more) was replaced"));
    const auto alone = ddp.no_sync();
    EXPECT_NO_THROW(backward());
  });
}

TEST_P(DataParallelChanges, OfFrozenParametersMatterWhenTheyRequireAGradient) {
  for (const int ranks : {1, 2})
    run_training(ranks, GetParam(), [](const ProcessGroup& group) {
      Growing net;
      DistributedDataParallel ddp(net, group);
      add_tail(*net);
      for (const at::Tensor& parameter : net->tail->parameters()) parameter.set_requires_grad(false);
      const auto backward = [&] { ddp(part_of(0, group, group->getRank())).sum().backward(); };
      EXPECT_NO_THROW(backward());
      net->tail->bias.set_requires_grad(true);
      EXPECT_TRUE(says(usage_error_of(backward), "parameter \"tail.bias\" was added to the module"));
      net->unregister_module("tail");
      net->tail = nullptr;
      EXPECT_NO_THROW(backward());
    });
}

TEST_P(DataParallelChanges, ByConversionAreRefusedOnAllRanks) {
  for (const int ranks : {1, 2})
    run_training(ranks, GetParam(), [](const ProcessGroup& group) {
      DistributedDataParallel ddp(make_mlp(), group);
      at::Tensor input = part_of(0, group, group->getRank());
      ddp(input).sum().backward();
      ddp->zero_grad();
      if (group->getRank() == 0) {
        ddp->to(torch::kDouble);
        input = input.to(torch::kDouble);
      }
      const at::Tensor loss = ddp->forward(input).sum();
      const std::string text = usage_error_of([&] { loss.backward(); });
      EXPECT_TRUE(says(text, "on rank 0: parameter \"0.weight\" (and 5 more) was converted by to(),")) << text;
    });
}

TEST_P(DataParallelChanges, ByLoadingAreRefusedUnlessValuesAreCopied) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    nn::Linear saved(6, 1);
    nn::Linear net(6, 1);
    DistributedDataParallel ddp(net, group);
    const at::Tensor input = part_of(0, group, group->getRank());
    load_state_dict(*net, state_dict(*saved));
    EXPECT_NO_THROW(ddp(input).sum().backward());
    std::stringstream file;
    torch::save(saved, file);
    torch::load(net, file);
    const std::string text = usage_error_of([&] { ddp(input).sum().backward(); });
    EXPECT_TRUE(says(text, "or loaded by torch::load(), after DistributedDataParallel was made")) << text;
  });
}

TEST_P(DataParallelChanges, ByUnfreezingAreRefusedOnAllRanks) {
  for (const int ranks : {1, 2})
    run_training(ranks, GetParam(), [](const ProcessGroup& group) {
      Growing net;
      net->head->weight.set_requires_grad(false);
      DistributedDataParallel ddp(net, group);
      const at::Tensor input = part_of(0, group, group->getRank());
      EXPECT_NO_THROW(ddp(input).sum().backward());
      EXPECT_FALSE(net->head->weight.requires_grad());
      net->head->weight.set_requires_grad(true);
      const std::string text = usage_error_of([&] { ddp(input).sum().backward(); });
      EXPECT_TRUE(says(text, "parameter \"head.weight\" was made to require a gradient")) << text;
      // Also where it alone gets a gradient.
      for (const at::Tensor& parameter : net->parameters())
        parameter.set_requires_grad(parameter.is_same(net->head->weight));
      EXPECT_TRUE(says(usage_error_of([&] { ddp(input).sum().backward(); }), "made to require a gradient"));
    });
}

}  // namespace
}  // namespace retinue
