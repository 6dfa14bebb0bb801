#include "retinue/torch/tensor_parallel.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/groups.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "torch/trained_net.h"

namespace retinue {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using test::random_numbers;
using test::run_training;
using test::says;
using test::seeded;
using test::usage_error_of;
using Reduction = VocabParallelCrossEntropyOptions::Reduction;

class TensorParallel : public test::OnRanks {};
INSTANTIATE_TEST_SUITE_P(Backends, TensorParallel, TensorParallel::values(), TensorParallel::name_of);

nn::Linear full_linear(std::uint64_t seed, std::int64_t in, std::int64_t out, bool bias = true) {
  return seeded(seed, [&] {
    nn::Linear linear(nn::LinearOptions(in, out).bias(bias));
    linear->to(torch::kFloat64);
    return linear;
  });
}

/// Rank 0's `full` counts: the others' have other values.
nn::Linear on_rank_0(const nn::Linear& full, const ProcessGroup& group) {
  nn::Linear mine = std::dynamic_pointer_cast<nn::LinearImpl>(full->clone());
  const torch::NoGradGuard no_grad;
  if (group->getRank() != 0)
    for (at::Tensor& parameter : mine->parameters()) parameter.fill_(9);
  return mine;
}

at::Tensor part_of(const at::Tensor& whole, const ProcessGroup& group, std::int64_t dim) {
  return whole.chunk(group->getSize(), dim)[static_cast<std::size_t>(group->getRank())];
}

void expect_close(const at::Tensor& mine, const at::Tensor& expected, const char* what) {
  EXPECT_TRUE(mine.defined() && mine.sizes() == expected.sizes() && torch::allclose(mine, expected)) << what;
}

/// A loss, and its gradient for `input`, by a module of one process or of all ranks.
struct Pass {
  Pass(const std::function<at::Tensor(const at::Tensor&)>& layer, const at::Tensor& values)
      : input(values.clone().requires_grad_()), output(layer(input)) {
    (output.square() * random_numbers(5, output.sizes())).sum().backward();
  }
  at::Tensor input;
  at::Tensor output;
};

TEST_P(TensorParallel, ColumnsEqualALinear) {
  on_ranks([](const ProcessGroup& group) {
    for (const bool bias : {true, false}) {
      nn::Linear full = full_linear(1, 5, 12, bias);
      ColumnParallelLinear column(on_rank_0(full, group), group);
      EXPECT_EQ(column->weight.sizes(), (std::vector<std::int64_t>{12 / group->getSize(), 5}));
      const at::Tensor values = random_numbers(2, {2, 3, 5});
      const Pass alone([&](const at::Tensor& x) { return full(x); }, values);
      const Pass parallel([&](const at::Tensor& x) { return column(x); }, values);
      expect_close(parallel.output, alone.output, "output");
      expect_close(parallel.input.grad(), alone.input.grad(), "gradient of the input");
      expect_close(column->weight.grad(), part_of(full->weight.grad(), group, 0), "gradient of the weight");
      EXPECT_EQ(column->bias.defined(), bias);
      if (bias) expect_close(column->bias.grad(), part_of(full->bias.grad(), group, 0), "gradient of the bias");
      EXPECT_EQ(column->parameters().size(), bias ? 2u : 1u);
    }
  });
}

TEST_P(TensorParallel, RowsEqualALinear) {
  on_ranks([](const ProcessGroup& group) {
    for (const bool bias : {true, false}) {
      nn::Linear full = full_linear(1, 12, 5, bias);
      RowParallelLinear row(on_rank_0(full, group), group);
      EXPECT_EQ(row->weight.sizes(), (std::vector<std::int64_t>{5, 12 / group->getSize()}));
      const at::Tensor values = random_numbers(2, {4, 12});
      const Pass alone([&](const at::Tensor& x) { return full(x); }, values);
      const Pass parallel([&](const at::Tensor& x) { return row(x); }, values);
      expect_close(parallel.output, alone.output, "output");
      expect_close(parallel.input.grad(), alone.input.grad(), "gradient of the input");
      expect_close(row->weight.grad(), part_of(full->weight.grad(), group, 1), "gradient of the weight");
      if (bias) expect_close(row->bias.grad(), full->bias.grad(), "gradient of the bias");
    }
  });
}

TEST_P(TensorParallel, AnMlpNeedsNoGatherInItsMiddle) {
  on_ranks([](const ProcessGroup& group) {
    nn::Linear up = full_linear(1, 5, 12);
    nn::Linear down = full_linear(2, 12, 4);
    ColumnParallelLinear column(up, group, ColumnParallelLinearOptions{.gather_output = false});
    RowParallelLinear row(down, group, RowParallelLinearOptions{.input_is_parallel = true});
    const at::Tensor values = random_numbers(2, {4, 5});
    const Pass alone([&](const at::Tensor& x) { return down(torch::gelu(up(x))); }, values);
    const Pass parallel([&](const at::Tensor& x) { return row(torch::gelu(column(x))); }, values);
    expect_close(parallel.output, alone.output, "output");
    expect_close(parallel.input.grad(), alone.input.grad(), "gradient of the input");
    expect_close(column->weight.grad(), part_of(up->weight.grad(), group, 0), "gradient of the first weight");
    expect_close(column->bias.grad(), part_of(up->bias.grad(), group, 0), "gradient of the first bias");
    expect_close(row->weight.grad(), part_of(down->weight.grad(), group, 1), "gradient of the second weight");
    expect_close(row->bias.grad(), down->bias.grad(), "gradient of the second bias");
  });
}

TEST_P(TensorParallel, LayersAreMadeFromSizesAndBecomeWhole) {
  on_ranks([](const ProcessGroup& group) {
    torch::manual_seed(group->getRank());  // Others on each rank: rank 0's count.
    ColumnParallelLinear column(5, 6, group);
    RowParallelLinear row(6, 5, group, RowParallelLinearOptions{.bias = false});
    torch::manual_seed(0);
    const nn::Linear first(5, 6);
    const nn::Linear second(nn::LinearOptions(6, 5).bias(false));
    EXPECT_TRUE(torch::equal(column->to_linear()->weight, first->weight));
    EXPECT_TRUE(torch::equal(column->to_linear()->bias, first->bias));
    EXPECT_TRUE(torch::equal(row->to_linear()->weight, second->weight));
    EXPECT_FALSE(row->to_linear()->bias.defined());
    const auto copy = std::dynamic_pointer_cast<ColumnParallelLinearImpl>(column->clone());
    EXPECT_TRUE(torch::equal(copy->weight, column->weight));
    EXPECT_FALSE(copy->weight.is_same(column->weight));
    std::ostringstream text;
    text << *row;
    EXPECT_TRUE(says(text.str(), "RowParallelLinear(in_features=6, out_features=5, bias=false")) << text.str();
  });
}

TEST_P(TensorParallel, RegionsHaveGradientsOfGradients) {
  on_ranks([](const ProcessGroup& group) {
    const at::Tensor x = random_numbers(3, {6}).requires_grad_();
    const at::Tensor part = scatter_to_tensor_model_parallel_region(x, group);
    const at::Tensor cubes = gather_from_tensor_model_parallel_region(part * part * part, group);
    const at::Tensor copy = copy_to_tensor_model_parallel_region(x, group);
    const at::Tensor squares = reduce_from_tensor_model_parallel_region(copy * copy * copy / group->getSize(), group);
    for (const at::Tensor& result : {cubes, squares}) {
      const at::Tensor first = torch::autograd::grad({result.sum()}, {x}, {}, true, true)[0];
      expect_close(first, 3 * x * x, "gradient");
      expect_close(torch::autograd::grad({first.sum()}, {x})[0], 6 * x, "gradient of the gradient");
    }
  });
}

TEST_P(TensorParallel, RefusesWhatItCantDivideOnAllRanks) {
  on_ranks([](const ProcessGroup& group) {
    const int ranks = group->getSize();
    if (ranks == 1) return;
    const bool is_last = group->getRank() == ranks - 1;
    const auto expect = [&](const std::string& part, const std::function<void()>& call) {
      const std::string text = usage_error_of(call);
      EXPECT_TRUE(says(text, part)) << text;
    };
    expect("out_features is 7, which can't be divided among", [&] { ColumnParallelLinear(4, 7, group); });
    expect("in_features is 7, which can't be divided among", [&] { RowParallelLinear(7, 4, group); });
    expect("in_features is 0", [&] { RowParallelLinear(is_last ? 0 : 6, 4, group); });
    expect("rank 0 has 6 in_features, 6 out_features", [&] { ColumnParallelLinear(is_last ? 7 : 6, 6, group); });
    expect("can't be divided among", [&] { scatter_to_tensor_model_parallel_region(torch::ones({7}), group); });
    EXPECT_NO_THROW(ColumnParallelLinear(4, 6, group)) << "the group is usable";
  });
}

TEST_P(TensorParallel, BatchesOfDifferentSizesEndAllRanks) {
  on_ranks([](const ProcessGroup& group) {
    if (group->getSize() == 1) return;
    RowParallelLinear row(6, 4, group);
    EXPECT_THROW(row(torch::ones({group->getRank() == 0 ? 2 : 3, 6})), CollectiveMismatch);
  });
}

/// Ranks 0 and 1 divide a model, and so do 2 and 3, with another half of the batch.
TEST(TensorParallelRanks, TrainWithDistributedDataParallel) {
  run_training(4, "shm", [](const ProcessGroup& world) {
    const int rank = world->getRank();
    const ProcessGroup model_ranks = new_subgroups(2, world);
    const ProcessGroup replicas = new_subgroups_by_enumeration({{0, 2}, {1, 3}}, world);
    struct NetImpl : nn::Module {
      NetImpl(const nn::Linear& up, const nn::Linear& down, const ProcessGroup& group)
          : first(register_module(
                "up", ColumnParallelLinear(up, group, ColumnParallelLinearOptions{.gather_output = false}))),
            second(register_module(
                "down", RowParallelLinear(down, group, RowParallelLinearOptions{.input_is_parallel = true}))) {}
      at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(first(x))); }
      ColumnParallelLinear first;
      RowParallelLinear second;
    };
    nn::Linear up = full_linear(1, 5, 12);
    nn::Linear down = full_linear(2, 12, 4);
    DistributedDataParallel ddp(std::make_shared<NetImpl>(up, down, model_ranks), replicas);
    const at::Tensor x = random_numbers(6, {8, 5});
    down(torch::tanh(up(x))).square().mean().backward();
    ddp(x.narrow(0, rank < 2 ? 0 : 4, 4)).square().mean().backward();
    expect_close(ddp->first->weight.grad(), part_of(up->weight.grad(), model_ranks, 0), "first weight");
    expect_close(ddp->second->weight.grad(), part_of(down->weight.grad(), model_ranks, 1), "second weight");
    expect_close(ddp->second->bias.grad(), down->bias.grad(), "second bias");
  });
}

/// Class counts of the ranks: uneven ones, and none at all on one of three.
std::vector<std::int64_t> classes_of_ranks(int ranks) {
  if (ranks == 1) return {7};
  return ranks == 2 ? std::vector<std::int64_t>{3, 4} : std::vector<std::int64_t>{5, 0, 2};
}

TEST_P(TensorParallel, CrossEntropyEqualsThatOfAllClasses) {
  on_ranks([](const ProcessGroup& group) {
    const at::Tensor all = random_numbers(4, {2, 3, 7}).mul(20);  // exp() of differences needs the greatest one.
    const at::Tensor target = torch::tensor({{0, 6, 2}, {-100, 3, 5}});
    const auto classes = classes_of_ranks(group->getSize());
    std::int64_t first = 0;
    for (int rank = 0; rank < group->getRank(); ++rank) first += classes[static_cast<std::size_t>(rank)];
    const std::int64_t own = classes[static_cast<std::size_t>(group->getRank())];
    const auto check = [&](Reduction reduction, const F::CrossEntropyFuncOptions& options, std::int64_t ignored,
                           const at::Tensor& weights) {
      const at::Tensor whole = all.clone().requires_grad_();
      const at::Tensor part = all.narrow(-1, first, own).clone().requires_grad_();
      const at::Tensor expected = F::cross_entropy(whole.view({6, 7}), target.flatten(), options);
      const at::Tensor loss =
          vocab_parallel_cross_entropy(part, target, group, {.reduction = reduction, .ignore_index = ignored});
      expect_close(loss.flatten(), expected.flatten(), "loss");
      (loss.flatten() * weights).sum().backward();
      (expected.flatten() * weights).sum().backward();
      expect_close(part.grad(), whole.grad().narrow(-1, first, own), "gradient");
    };
    check(Reduction::kMean, F::CrossEntropyFuncOptions(), -100, torch::ones({1}));
    check(Reduction::kSum, F::CrossEntropyFuncOptions().reduction(torch::kSum), -100, torch::full({1}, 3.0));
    check(Reduction::kNone, F::CrossEntropyFuncOptions().reduction(torch::kNone), -100, random_numbers(8, {6}));
  });
}

TEST_P(TensorParallel, CrossEntropyTakesShortTypesAndOtherIgnoredClasses) {
  on_ranks([](const ProcessGroup& group) {
    const at::Tensor all = random_numbers(4, {5, 6}).to(torch::kBFloat16);
    const at::Tensor target = torch::tensor({1, 1, 4, 2, 1});
    const at::Tensor part = part_of(all, group, 1).clone().requires_grad_();
    const at::Tensor loss = vocab_parallel_cross_entropy(part, target, group, {.ignore_index = 1});
    EXPECT_EQ(loss.scalar_type(), torch::kBFloat16);
    const at::Tensor expected =
        F::cross_entropy(all.to(torch::kFloat), target, F::CrossEntropyFuncOptions().ignore_index(1));
    EXPECT_NEAR(loss.item<float>(), expected.item<float>(), 0.02);
    loss.backward();
    EXPECT_EQ(part.grad()[0].abs().sum().item<float>(), 0) << "of an ignored target";
  });
}

TEST_P(TensorParallel, CrossEntropyHasNoGradientOfItsGradient) {
  on_ranks([](const ProcessGroup& group) {
    const at::Tensor logits = torch::ones({2, 2}).requires_grad_();
    const at::Tensor loss = vocab_parallel_cross_entropy(logits, torch::tensor({0, 1}), group);
    const std::string text = usage_error_of([&] { torch::autograd::grad({loss}, {logits}, {}, true, true); });
    EXPECT_TRUE(says(text, "call backward() without create_graph")) << text;
    EXPECT_NO_THROW(loss.backward());
  });
}

TEST_P(TensorParallel, CrossEntropyRefusesTargetsOnAllRanks) {
  on_ranks([](const ProcessGroup& group) {
    const int ranks = group->getSize();
    const bool is_last = group->getRank() == ranks - 1;
    const at::Tensor logits = torch::ones({2, 2});
    const auto expect = [&](const std::string& part, const at::Tensor& mine, const at::Tensor& target) {
      const std::string text = usage_error_of([&] { vocab_parallel_cross_entropy(mine, target, group); });
      EXPECT_TRUE(says(text, part)) << text;
    };
    expect("targets are between 0 and 9, but all ranks together have classes 0 to", logits, torch::tensor({0, 9}));
    expect("targets are between -1 and 0", logits, torch::tensor({0, -1}));
    expect("it needs class indices, of type Long", logits,
           is_last ? torch::zeros({2}) : torch::zeros({2}, torch::kLong));
    expect("target needs the shape of logits", logits, torch::zeros({is_last ? 3 : 2}, torch::kLong));
    if (ranks > 1) expect("has other targets than rank 0", logits, torch::tensor({1, is_last ? 0 : 1}));
    EXPECT_NO_THROW(vocab_parallel_cross_entropy(logits, torch::tensor({0, 1}), group)) << "the group is usable";
  });
}

}  // namespace
}  // namespace retinue
