#include "retinue/torch/functional.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "retinue/base/error.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "torch/numeric_gradient.h"
#include "torch/trained_net.h"

namespace retinue {
namespace {

using test::says;
using test::usage_error_of;

class Functional : public test::OnRanks {};
INSTANTIATE_TEST_SUITE_P(Backends, Functional, Functional::values(), Functional::name_of);

/// What a rank has, the same in all processes.
at::Tensor tensor_of(int rank, at::IntArrayRef sizes) {
  return test::random_numbers(40u + static_cast<unsigned>(rank), sizes);
}

std::vector<at::Tensor> tensors_of_all(int ranks, at::IntArrayRef sizes) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(tensor_of(rank, sizes));
  return all;
}

using Collective = std::function<at::Tensor(const at::Tensor&)>;

/// A loss that is another one on each rank.
at::Tensor loss_of(const at::Tensor& result, int rank) {
  const at::Tensor weights = tensor_of(rank + 10, result.sizes());
  return (weights * result.square() + result).sum();
}

void expect_right_gradient(const Collective& collective, const at::Tensor& tensor, const ProcessGroup& group) {
  const at::Tensor input = tensor.clone().requires_grad_();
  const at::Tensor before = tensor.clone();
  const at::Tensor result = collective(input * input);
  EXPECT_TRUE(torch::equal(input.detach(), before)) << "the input was changed";
  loss_of(result, group->getRank()).backward();
  const at::Tensor numeric =
      test::numeric_gradient([&] { return loss_of(collective(input * input), group->getRank()); }, input, group);
  EXPECT_TRUE(torch::allclose(input.grad(), numeric, 1e-5, 1e-6)) << input.grad() << numeric;
}

TEST_P(Functional, AllReduceHasTheSumAndItsGradient) {
  on_ranks([](const ProcessGroup& group) {
    const int ranks = group->getSize();
    const at::Tensor sum = torch::stack(tensors_of_all(ranks, {2, 3})).sum(0);
    const at::Tensor mine = tensor_of(group->getRank(), {2, 3});
    EXPECT_TRUE(torch::allclose(functional::all_reduce(mine, group), sum));
    EXPECT_TRUE(torch::allclose(functional::all_reduce(mine, group, {.op = c10d::ReduceOp::AVG}), sum / ranks));
    const at::Tensor columns = functional::all_reduce(mine.t(), group);  // Isn't contiguous.
    EXPECT_TRUE(torch::allclose(columns, sum.t()));
    for (const auto op : {c10d::ReduceOp::SUM, c10d::ReduceOp::AVG})
      expect_right_gradient([&](const at::Tensor& x) { return functional::all_reduce(x, group, {.op = op}); }, mine,
                            group);
  });
}

TEST_P(Functional, AllGatherJoinsAlongADimension) {
  on_ranks([](const ProcessGroup& group) {
    for (const std::int64_t dim : {0, 1, -1}) {
      const at::Tensor mine = tensor_of(group->getRank(), {2, 3, 2});
      const auto gather = [&](const at::Tensor& x) { return functional::all_gather(x, group, {.dim = dim}); };
      EXPECT_TRUE(torch::equal(gather(mine), torch::cat(tensors_of_all(group->getSize(), {2, 3, 2}), dim)));
      expect_right_gradient(gather, mine, group);
    }
  });
}

TEST_P(Functional, ReduceScatterDividesASum) {
  on_ranks([](const ProcessGroup& group) {
    const std::int64_t ranks = group->getSize();
    const at::Tensor mine = tensor_of(group->getRank(), {2 * ranks, ranks});
    const at::Tensor sum = torch::stack(tensors_of_all(group->getSize(), mine.sizes())).sum(0);
    for (const std::int64_t dim : {0, -1})
      for (const auto op : {c10d::ReduceOp::SUM, c10d::ReduceOp::AVG}) {
        const auto reduce = [&](const at::Tensor& x) {
          return functional::reduce_scatter(x, group, {.dim = dim, .op = op});
        };
        const at::Tensor part = sum.chunk(ranks, dim)[static_cast<std::size_t>(group->getRank())];
        EXPECT_TRUE(torch::allclose(reduce(mine), op == c10d::ReduceOp::AVG ? part / ranks : part));
        expect_right_gradient(reduce, mine, group);
      }
  });
}

/// Rank r sends r + s rows to rank s.
TEST_P(Functional, AllToAllSendsRowsOfAnyNumber) {
  on_ranks([](const ProcessGroup& group) {
    const int ranks = group->getSize();
    const int own = group->getRank();
    const auto offset = [&](int from, int to) {
      std::int64_t rows = 0;
      for (int rank = 0; rank < to; ++rank) rows += from + rank;
      return rows;
    };
    functional::AllToAllOptions splits;
    std::vector<at::Tensor> expected;
    for (int rank = 0; rank < ranks; ++rank) {
      splits.input_split_sizes.push_back(own + rank);
      splits.output_split_sizes.push_back(rank + own);
      expected.push_back(tensor_of(rank, {offset(rank, ranks), 2}).narrow(0, offset(rank, own), rank + own));
    }
    const auto exchange = [&](const at::Tensor& x) { return functional::all_to_all_single(x, group, splits); };
    const at::Tensor mine = tensor_of(own, {offset(own, ranks), 2});
    EXPECT_TRUE(torch::equal(exchange(mine), torch::cat(expected)));
    expect_right_gradient(exchange, mine, group);
    const at::Tensor even = torch::arange(ranks).add(10 * own);
    EXPECT_TRUE(torch::equal(functional::all_to_all_single(even, group), torch::arange(ranks).mul(10).add(own)));
  });
}

TEST_P(Functional, BroadcastGivesOneRankAllGradients) {
  on_ranks([](const ProcessGroup& group) {
    const int src = group->getSize() - 1;
    const auto copy = [&](const at::Tensor& x) { return functional::broadcast(x, group, {.src = src}); };
    const at::Tensor mine = tensor_of(group->getRank(), {3});
    EXPECT_TRUE(torch::equal(copy(mine), tensor_of(src, {3})));
    expect_right_gradient(copy, mine, group);
  });
}

/// Else the backward of one rank would wait for the others.
TEST_P(Functional, ResultsRequireAGradientIfOneRanksInputDoes) {
  on_ranks([](const ProcessGroup& group) {
    const bool is_source = group->getRank() == 0;
    const at::Tensor parameter = torch::ones({2}).requires_grad_(is_source);
    const at::Tensor result = functional::broadcast(parameter, group);
    EXPECT_TRUE(result.requires_grad());
    (result * (group->getRank() + 1)).sum().backward();
    if (is_source) {
      const int ranks = group->getSize();
      EXPECT_TRUE(torch::equal(parameter.grad(), torch::full({2}, static_cast<float>(ranks * (ranks + 1) / 2))));
    }
    EXPECT_FALSE(functional::broadcast(torch::ones({2}), group).requires_grad());
  });
}

/// d/dx of sum over ranks of (sum of x^2 of all)^2, twice.
TEST_P(Functional, HasGradientsOfGradients) {
  on_ranks([](const ProcessGroup& group) {
    const at::Tensor x = tensor_of(group->getRank(), {2}).requires_grad_();
    const at::Tensor loss = functional::all_reduce(x.square(), group).square().sum();
    const at::Tensor first = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    const at::Tensor all = torch::stack(tensors_of_all(group->getSize(), {2}));
    const at::Tensor sum = all.square().sum(0);
    const double ranks = group->getSize();
    EXPECT_TRUE(torch::allclose(first.detach(), 4 * ranks * sum * x.detach()));
    first.sum().backward();
    // Of sum over ranks r of 4 n S x_r: 8 n x (sum of x_r) + 4 n S.
    EXPECT_TRUE(torch::allclose(x.grad(), 8 * ranks * x.detach() * all.sum(0) + 4 * ranks * sum));
  });
}

TEST_P(Functional, OtherReductionsNeedInputsWithoutGradient) {
  on_ranks([](const ProcessGroup& group) {
    const at::Tensor rank = torch::full({2}, static_cast<float>(group->getRank()));
    const at::Tensor greatest = functional::all_reduce(rank, group, {.op = c10d::ReduceOp::MAX});
    EXPECT_TRUE(torch::equal(greatest, torch::full({2}, static_cast<float>(group->getSize() - 1))));
    const at::Tensor trained = rank.clone().requires_grad_();
    const std::string text =
        usage_error_of([&] { functional::all_reduce(trained, group, {.op = c10d::ReduceOp::MAX}); });
    EXPECT_TRUE(says(text, "rank 0: the tensor requires a gradient, and MAX has none here")) << text;
    EXPECT_NO_THROW(functional::all_reduce(trained.detach(), group, {.op = c10d::ReduceOp::MAX}));
  });
}

TEST_P(Functional, RefusesOneRanksArgumentsOnAllRanks) {
  on_ranks([](const ProcessGroup& group) {
    const int last = group->getSize() - 1;
    const bool is_last = group->getRank() == last;
    const std::string rank = "rank " + std::to_string(last) + ": ";
    const at::Tensor ones = torch::ones({2, 2});
    const auto expect = [&](const std::string& part, const std::function<void()>& call) {
      const std::string text = usage_error_of(call);
      EXPECT_TRUE(says(text, part)) << text;
    };
    expect(rank + "the tensor is undefined", [&] { functional::all_reduce(is_last ? at::Tensor() : ones, group); });
    expect(rank + "the tensor's layout is Sparse",
           [&] { functional::all_reduce(is_last ? ones.to_sparse() : ones, group); });
    expect(rank + "dim is 2, but the tensor has 2 dimensions",
           [&] { functional::all_gather(ones, group, {.dim = is_last ? 2 : 0}); });
    expect(rank + "src is 7, but the group has ranks 0 to",
           [&] { functional::broadcast(ones, group, {.src = is_last ? 7 : 0}); });
    expect("rank 0: input_split_sizes is [1, 1, 1, 1]: it needs a number of rows for each of", [&] {
      functional::all_to_all_single(torch::ones({12}), group, {.input_split_sizes = {1, 1, 1, 1}});
    });
    const at::Tensor sum = functional::all_reduce(torch::ones({1}), group);
    EXPECT_EQ(sum.item<float>(), static_cast<float>(group->getSize())) << "the group is usable";
    EXPECT_NE(usage_error_of([] { functional::all_reduce(torch::ones({1}), {}); }).find("group is null"),
              std::string::npos);
  });
}

TEST_P(Functional, RefusesCallsThatDifferBetweenRanks) {
  on_ranks([](const ProcessGroup& group) {
    if (group->getSize() == 1) return;
    const bool is_first = group->getRank() == 0;
    const auto expect = [&](const std::string& part, const std::function<void()>& call) {
      const std::string text = usage_error_of(call);
      EXPECT_TRUE(says(text, part)) << text;
    };
    // As many elements.
    expect(
        "rank 0 calls functional::all_reduce by SUM of a tensor of type Float and shape [2, 3] on cpu, but rank 1 "
        "calls functional::all_reduce by SUM of a tensor of type Float and shape [3, 2] on cpu",
        [&] {
          functional::all_reduce(is_first ? torch::ones({2, 3}) : torch::ones({3, 2}), group);
        });
    expect("shape [2] on cpu along dimension 0, but rank 1",
           [&] { functional::all_gather(is_first ? torch::ones({2}) : torch::ones({3}), group); });
    expect("type Float and shape [2] on cpu, but rank 1 calls functional::all_reduce by SUM of a tensor of type Int",
           [&] { functional::all_reduce(is_first ? torch::ones({2}) : torch::ones({2}, torch::kInt), group); });
    expect("functional::all_reduce by AVG", [&] {
      functional::all_reduce(torch::ones({2}), group, {.op = is_first ? c10d::ReduceOp::SUM : c10d::ReduceOp::AVG});
    });
    expect("from rank 1", [&] { functional::broadcast(torch::ones({2}), group, {.src = is_first ? 0 : 1}); });
    expect("rank 0 calls functional::all_gather", [&] {
      is_first ? functional::all_gather(torch::ones({2}), group) : functional::all_reduce(torch::ones({2}), group);
    });
    expect("rows to rank", [&] {
      std::vector<std::int64_t> rows(static_cast<std::size_t>(group->getSize()), 1);
      if (is_first) rows.back() = 2;
      functional::all_to_all_single(torch::ones({group->getSize()}), group, {.output_split_sizes = rows});
    });
    expect("but rank 1 calls without gradients (NoGradGuard)", [&] {
      const torch::AutoGradMode mode(is_first);
      functional::all_reduce(torch::ones({2}).requires_grad_(), group);
    });
    EXPECT_NO_THROW(functional::all_reduce(torch::ones({2}), group)) << "the group is usable";
  });
}

/// Between its forward and its backward.
TEST(FunctionalRanks, GetPeerLostInBackwardIfOneIsKilled) {
  for (const char* backend : {"shm", "gloo"})
    test::run_ranks(3,
                    [&](const JobGroup& members) {
                      const ProcessGroup group = init_process_group(members, {.backend = backend});
                      const at::Tensor x = torch::ones({2}).requires_grad_();
                      const at::Tensor sum = functional::all_reduce(x, group);
                      if (group->getRank() == 1) raise(SIGKILL);
                      EXPECT_THROW(sum.sum().backward(), PeerLost) << backend;
                      EXPECT_THROW(functional::all_reduce(x, group), PeerLost) << backend;
                    },
                    {.killed = {1}});
}

TEST_P(Functional, RefusesADimensionThatRanksDontDivide) {
  on_ranks([](const ProcessGroup& group) {
    const int ranks = group->getSize();
    if (ranks == 1) return;
    const std::string text = usage_error_of([&] {
      functional::reduce_scatter(torch::ones({2, ranks + 1}), group, {.dim = 1});
    });
    EXPECT_TRUE(says(text, "dimension 1 of shape [2, " + std::to_string(ranks + 1) + "] can't be divided among"))
        << text;
  });
}

}  // namespace
}  // namespace retinue
