// Backwards inside of backwards: autograd calls them re-entrant.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "retinue/torch/distributed_data_parallel.h"
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

/// Computes a part of a module without a graph, and once more, with one, in backward.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const std::function<at::Tensor(at::Tensor)>& part) {
    context->save_for_backward({input});
    context->saved_data["part"] = reinterpret_cast<std::int64_t>(&part);
    const torch::NoGradGuard no_grad;
    return part(input);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto& part =
        *reinterpret_cast<const std::function<at::Tensor(at::Tensor)>*>(context->saved_data["part"].toInt());
    const torch::AutoGradMode enabled(true);
    const at::Tensor input = context->get_saved_variables()[0].detach().requires_grad_();
    torch::autograd::backward({part(input)}, {gradients[0]});
    return {input.grad(), {}};
  }
};

/// Three layers, of which the first two are computed again in backward, each for itself.
struct CheckpointedImpl : nn::Module {
  explicit CheckpointedImpl(bool checkpoints)
      : first(register_module("first", nn::Linear(6, 8))),
        second(register_module("second", nn::Linear(8, 8))),
        third(register_module("third", nn::Linear(8, 3))),
        checkpoints_(checkpoints),
        parts_{[this](const at::Tensor& x) { return torch::tanh(first(x)); },
               [this](const at::Tensor& x) { return torch::tanh(second(x)); }} {}

  at::Tensor forward(const at::Tensor& input, bool uses_third = true) {
    at::Tensor x = input;
    for (const auto& part : parts_) x = checkpoints_ ? Checkpoint::apply(x, part) : part(x);
    return uses_third ? third(x) : x;
  }

  nn::Linear first, second, third;

 private:
  bool checkpoints_;
  std::vector<std::function<at::Tensor(at::Tensor)>> parts_;
};
TORCH_MODULE(Checkpointed);

at::Tensor with_gradient(const at::Tensor& input) {
  return input.detach().requires_grad_();
}

class NestedBackwards : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, NestedBackwards, testing::Values("shm", "gloo"));

TEST_P(NestedBackwards, OfCheckpointsAreAveraged) {
  for (const bool find_unused_parameters : {false, true})
    for (const int ranks : {1, 2, 3})
      run_training(ranks, GetParam(), [&](const ProcessGroup& group) {
        Checkpointed alone = seeded(3, [] { return Checkpointed(false); });
        DistributedDataParallel ddp(seeded(3, [] { return Checkpointed(true); }), group,
                                    {.find_unused_parameters = find_unused_parameters});
        for (int step = 0; step < 3; ++step) {
          ddp->zero_grad();
          alone->zero_grad();
          ddp(with_gradient(part_of(step, group, group->getRank()))).square().sum().backward();
          for (int rank = 0; rank < ranks; ++rank)
            (alone(part_of(step, group, rank)).square().sum() / ranks).backward();
          for (std::size_t i = 0; i < alone->parameters().size(); ++i)
            EXPECT_TRUE(torch::allclose(ddp.parameters()[i].grad(), alone->parameters()[i].grad(), 1e-4, 1e-5))
                << "step " << step << " parameter " << i;
        }
      });
}

TEST_P(NestedBackwards, ThatLackAGradientAtTheirEndAreToldByTheNextForward) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    DistributedDataParallel ddp(seeded(3, [] { return Checkpointed(true); }), group, {.find_unused_parameters = true});
    const at::Tensor input = with_gradient(torch::ones({2, 6}));
    ddp(input, /*uses_third=*/false).sum().backward();
    const std::string error = usage_error_of([&] { ddp(input); });
    EXPECT_TRUE(says(error, "ended inside of another one, without gradients of all parameters")) << error;
    ddp->zero_grad();
    EXPECT_NO_THROW(ddp(input).sum().backward());
  });
}

/// One rank's is enough.
TEST(ShmNestedBackwards, OfTheWholeModuleAddToItsGradients) {
  run_training(2, "shm", [](const ProcessGroup& group) {
    DistributedDataParallel ddp(nn::Linear(2, 1), group);
    const at::Tensor input = torch::ones({1, 2}, torch::requires_grad());
    CallsInBackward::call = [&] {
      if (group->getRank() == 1) ddp->forward(10 * input.detach()).sum().backward();
    };
    ddp(CallsInBackward::apply(input)).sum().backward();
    EXPECT_EQ(ddp->weight.grad()[0][0].item<float>(), (1 + 1 + 10) / 2.0F);
    {
      const auto alone = ddp.no_sync();
      ddp->zero_grad();
      ddp(CallsInBackward::apply(input)).sum().backward();
      EXPECT_EQ(ddp->weight.grad()[0][0].item<float>(), group->getRank() == 1 ? 11 : 1);
    }
  });
}

TEST(GlooNestedBackwards, OfTheWholeModuleAreRefusedWhereBucketsAreUnderWay) {
  run_training(2, "gloo", [](const ProcessGroup& group) {
    DistributedDataParallel ddp(make_mlp(), group);
    const at::Tensor input = torch::ones({1, 6}, torch::requires_grad());
    CallsInBackward::call = [&] { ddp->forward(input.detach()).sum().backward(); };
    const auto backward = [&] { ddp(CallsInBackward::apply(input)).sum().backward(); };
    const std::string error = usage_error_of(backward);
    EXPECT_TRUE(says(error, "got two gradients in a backward inside of another one")) << error;
  });
}

}  // namespace
}  // namespace retinue
