// The collectives in which ranks exchange parts: gathers, scatters, all_to_all and the reductions with one taker each.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/torch/process_group.h"
#include "retinue/torch/shared_tensor.h"
#include "support/ranks.h"
#include "torch/libtorch_versions.h"

namespace retinue {
namespace {

using test::run_ranks;

constexpr int kRanks = 3;

/// What rank `from` gives to rank `to`; its size may depend on both.
at::Tensor part(int from, int to, at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  auto generator =
      at::make_generator<at::CPUGeneratorImpl>(100u + 10u * static_cast<unsigned>(from) + static_cast<unsigned>(to));
  return torch::randint(-9, 9, sizes, generator, torch::kFloat64).to(type);
}

at::Tensor sum_of_parts(int to, at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  at::Tensor sum = part(0, to, sizes, type);
  for (int from = 1; from < kRanks; ++from) sum = sum + part(from, to, sizes, type);
  return sum;
}

/// Tensors for `make(i)` of each rank: of one allocation each, views of one tensor, not contiguous, or in job memory.
std::vector<at::Tensor> list_of(int layout, const JobGroup& members, const auto& make) {
  std::vector<at::Tensor> list;
  for (int i = 0; i < kRanks; ++i) list.push_back(make(i));
  if (layout == 1) return torch::stack(list).unbind(0);
  if (layout == 2) return torch::stack(list, -1).unbind(-1);
  if (layout == 3)
    for (at::Tensor& tensor : list) {
      const at::Tensor shared = shared_empty(tensor.sizes(), members.memory, tensor.scalar_type());
      shared.copy_(tensor);
      tensor = shared;
    }
  return list;
}

void expect_equal(const at::Tensor& result, const at::Tensor& expected, const char* what, int layout) {
  EXPECT_TRUE(torch::equal(result, expected)) << what << ", layout " << layout;
}

void finish(const Work& work) {
  if (work) work->wait();
}

class TensorExchange : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, TensorExchange, testing::Values("shm", "gloo"));

TEST_P(TensorExchange, MovesTheListsOfAllLayouts) {
  run_ranks(kRanks, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    const int own = members.rank;
    for (int layout = 0; layout < 4; ++layout)
      for (const bool async_op : {false, true})
        for (const std::int64_t rows : {0, 1, 7, 3000}) {
          const std::vector<std::int64_t> sizes{rows, 3};
          const auto zeros = [&](int) { return torch::zeros(sizes); };
          const int root = static_cast<int>(rows) % kRanks;

          auto outputs = list_of(layout, members, zeros);
          const auto inputs = list_of(layout, members, [&](int to) { return part(own, to, sizes); });
          finish(all_to_all(outputs, inputs, group, {.async_op = async_op}));
          for (int from = 0; from < kRanks; ++from)
            expect_equal(outputs[static_cast<std::size_t>(from)], part(from, own, sizes), "all_to_all", layout);

          outputs = own == root ? list_of(layout, members, zeros) : std::vector<at::Tensor>{};
          finish(gather(outputs, inputs[0], group, {.dst = root, .async_op = async_op}));
          for (std::size_t from = 0; from < outputs.size(); ++from)
            expect_equal(outputs[from], part(static_cast<int>(from), 0, sizes), "gather", layout);

          const at::Tensor taken = list_of(layout, members, zeros)[1];
          finish(scatter(taken, own == root ? inputs : std::vector<at::Tensor>{}, group,
                         {.src = root, .async_op = async_op}));
          expect_equal(taken, part(root, own, sizes), "scatter", layout);

          finish(reduce_scatter(taken, inputs, group, {.async_op = async_op}));
          expect_equal(taken, sum_of_parts(own, sizes), "reduce_scatter", layout);
        }
  });
}

TEST_P(TensorExchange, MovesPartsOfSizesOfTheirOwn) {
  run_ranks(kRanks, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    const int own = members.rank;
    const auto rows = [](int from, int to) { return std::int64_t{from * 2 + to}; };
    std::vector<at::Tensor> outputs;
    std::vector<at::Tensor> inputs;
    AllToAllOptions splits;
    for (int i = 0; i < kRanks; ++i) {
      outputs.push_back(torch::zeros({rows(i, own), 2}));
      inputs.push_back(part(own, i, {rows(own, i), 2}));
      splits.output_split_sizes.push_back(rows(i, own));
      splits.input_split_sizes.push_back(rows(own, i));
    }
    all_to_all(outputs, inputs, group);
    const at::Tensor whole = torch::zeros_like(torch::cat(outputs));
    all_to_all_single(whole, torch::cat(inputs), group, splits);
    EXPECT_TRUE(torch::equal(whole, torch::cat(outputs)));
    const at::Tensor rows_of_one = torch::zeros({kRanks});
    all_to_all_single(rows_of_one, torch::full({kRanks}, own + 1.0f), group, {.input_split_sizes = {1, 1, 1}});
    EXPECT_TRUE(torch::equal(rows_of_one, torch::arange(1.0f, kRanks + 1.0f)));
    for (int from = 0; from < kRanks; ++from)
      EXPECT_TRUE(torch::equal(outputs[static_cast<std::size_t>(from)], part(from, own, {rows(from, own), 2})));

    std::vector<at::Tensor> gathered;
    for (int from = 0; from < kRanks; ++from) gathered.push_back(torch::zeros({from + 1}));
    all_gather(gathered, part(own, 0, {own + 1}), group);
    gather(own == 0 ? gathered : std::vector<at::Tensor>{}, part(own, 1, {own + 1}), group);
    for (int from = 0; from < kRanks; ++from)
      EXPECT_TRUE(torch::equal(gathered[static_cast<std::size_t>(from)], part(from, own == 0 ? 1 : 0, {from + 1})));
  });
}

TEST_P(TensorExchange, TakesTensorsOfAllRanksAsOne) {
  run_ranks(kRanks, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    const int own = members.rank;
    const at::Tensor mine = part(own, own, {4, 2}, at::kLong);
    at::Tensor all = torch::zeros({kRanks * 4, 2}, torch::kLong);
    all_gather_into_tensor(all, mine, group);
    for (int from = 0; from < kRanks; ++from)
      EXPECT_TRUE(torch::equal(all.narrow(0, from * 4, 4), part(from, from, {4, 2}, at::kLong)));
    const at::Tensor swapped = torch::zeros_like(all);
    all_to_all_single(swapped, all, group);
    for (int from = 0; from < kRanks; ++from)
      EXPECT_TRUE(torch::equal(swapped.narrow(0, from * 4, 4), part(own, own, {4, 2}, at::kLong)));
    const at::Tensor own_sum = torch::zeros({4, 2}, torch::kLong);
    reduce_scatter_tensor(own_sum, all, group, {.op = c10d::ReduceOp::AVG});
    EXPECT_TRUE(torch::equal(own_sum, mine));
    const at::Tensor reduced = mine.clone();
    reduce(reduced, group, {.dst = 2});
    EXPECT_TRUE(torch::equal(reduced, own == 2 ? all.view({kRanks, 4, 2}).sum(0) : mine));
    const std::vector<at::Tensor> several{part(own, 0, {5}), part(own, 1, {2, 2})};
    all_reduce_coalesced(several, group);
    EXPECT_TRUE(torch::equal(several[0], sum_of_parts(0, {5})));
    EXPECT_TRUE(torch::equal(several[1], sum_of_parts(1, {2, 2})));
  });
}

TEST_P(TensorExchange, ReducesManyTensorsAtOnce) {
  run_ranks(kRanks, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    const int own = members.rank;
    for (const std::int64_t rows : {3, 300, 30'000}) {
      const std::vector<std::vector<std::int64_t>> shapes{{rows, 2}, {0}, {rows}, {2, rows}};
      std::vector<at::Tensor> list;
      for (const auto& shape : shapes)
        list.push_back(own == 0 ? shared_empty(shape, members.memory, at::kFloat) : torch::empty(shape));
      if (own == 1) list.back() = torch::empty({rows, 2}).t();  // Not contiguous.
      const auto check = [&](const auto& reduce) {
        for (std::size_t i = 0; i < list.size(); ++i) list[i].copy_(part(own, static_cast<int>(i), shapes[i]));
        reduce();
        for (std::size_t i = 0; i < list.size(); ++i)
          EXPECT_TRUE(torch::equal(list[i], sum_of_parts(static_cast<int>(i), shapes[i]))) << rows << " rows, " << i;
      };
      check([&] { all_reduce_coalesced(list, group); });
      check([&] { all_reduce_coalesced(list, group, {.async_op = true})->wait(); });
      check([&] { group->allreduce_coalesced(list)->wait(); });
    }
  });
}

TEST_P(TensorExchange, RefusesListsOfTensorsThatCannotBeReducedAtOnce) {
  run_ranks(kRanks, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    const at::Tensor whole = torch::ones({8});
    EXPECT_THROW(all_reduce_coalesced({}, group), UsageError);
    EXPECT_THROW(all_reduce_coalesced({whole, torch::ones({2}, torch::kLong)}, group), UsageError);
    EXPECT_THROW(all_reduce_coalesced({whole, whole.narrow(0, 2, 2)}, group), UsageError);
    all_reduce_coalesced({whole}, group);  // Which is why the group goes on.
    EXPECT_TRUE(torch::equal(whole, torch::full({8}, double{kRanks})));
  });
}

TEST_P(TensorExchange, GoesThroughC10dToo) {
  run_ranks(kRanks, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    const int own = members.rank;
    const auto zeros = [](int) { return torch::zeros({2}); };
    std::vector<at::Tensor> inputs = list_of(0, members, [&](int to) { return part(own, to, {2}); });
    std::vector<at::Tensor> outputs = list_of(0, members, zeros);
    std::vector<at::Tensor> one{torch::zeros({2})};
    group->alltoall(outputs, inputs)->wait();
    EXPECT_TRUE(torch::equal(outputs[1], part(1, own, {2})));
    std::vector<std::vector<at::Tensor>> lists;
    if (own == 0) lists.push_back(inputs);
    group->scatter(one, lists)->wait();
    EXPECT_TRUE(torch::equal(one[0], part(0, own, {2})));
    if (own == 0) lists = {outputs};
    group->gather(lists, one)->wait();
    EXPECT_TRUE(own != 0 || torch::equal(outputs[2], part(0, 2, {2})));
    lists = {inputs};
    group->reduce_scatter(one, lists)->wait();
    EXPECT_TRUE(torch::equal(one[0], sum_of_parts(own, {2})));
    group->reduce(one)->wait();
    at::Tensor whole = torch::cat(inputs);
    std::invoke(libtorch::kReduceScatterSingle, *group, one[0], whole, c10d::ReduceScatterOptions())->wait();
    EXPECT_TRUE(torch::equal(one[0], sum_of_parts(own, {2})));
    at::Tensor swapped = torch::zeros({2 * kRanks});
    std::vector<std::int64_t> even;
    std::invoke(libtorch::kAllToAllSingle, *group, swapped, whole, even, even, c10d::AllToAllOptions())->wait();
    EXPECT_TRUE(torch::equal(swapped.narrow(0, 2, 2), part(1, own, {2})));
  });
}

TEST_P(TensorExchange, RefusesWhatDoesNotFit) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    const at::Tensor two = torch::ones({2});
    const at::Tensor four = torch::ones({4});
    EXPECT_THROW(all_gather({two, two, two}, two, group), UsageError);
    EXPECT_THROW(gather({}, two, group, {.dst = members.rank}), UsageError);
    EXPECT_THROW(gather({two, two}, two, group, {.dst = 2}), UsageError);
    EXPECT_THROW(scatter(two, {two, four.to(at::kInt)}, group, {.src = members.rank}), UsageError);
    EXPECT_THROW(reduce_scatter(two, {four, four}, group), UsageError);
    EXPECT_THROW(reduce_scatter_tensor(two, two, group), UsageError);
    EXPECT_THROW(all_gather_into_tensor(two, two, group), UsageError);
    EXPECT_THROW(all_to_all({two, two}, {two}, group), UsageError);
    EXPECT_THROW(all_to_all_single(four, two, group), UsageError);
    EXPECT_THROW(
        all_to_all_single(two.clone(), two, group, {.output_split_sizes = {1, 1}, .input_split_sizes = {1, 2}}),
        UsageError);
    EXPECT_THROW(all_to_all_single(two.clone(), two, group, {.output_split_sizes = {1}, .input_split_sizes = {1, 1}}),
                 UsageError);
    EXPECT_THROW(all_gather({two}, two, group, {.async_op = true}), UsageError);  // From the call, not from wait().
    EXPECT_THROW(all_to_all_single(torch::ones({3, 2}), torch::ones({3, 2}), group), UsageError);  // No half rows.
    EXPECT_EQ(group->getDefaultBackend()->getError(), c10d::ErrorType::SUCCESS);
    barrier(group);  // None of these was sent.
    const ProcessGroup other = init_process_group(members, {.backend = GetParam(), .group_name = "other"});
    const auto gather_too_much = [&] {
      all_gather({two.clone(), torch::zeros({members.rank == 0 ? 3 : 2})}, two, other);
      barrier(other);
    };
    EXPECT_THROW(gather_too_much(), CollectiveMismatch);
  });
}

/// Of as many bytes: nothing else would tell.
TEST_P(TensorExchange, RefusesToMixTypes) {
  run_ranks(2, [](const JobGroup& members) {
    const at::Tensor own = torch::ones({4}, members.rank == 0 ? torch::kFloat : torch::kInt);
    const std::vector<at::Tensor> parts = {own.clone(), own.clone()};
    const auto empty_at_other = [&](int root) { return members.rank == root ? parts : std::vector<at::Tensor>(); };
    using Call = std::function<void(const ProcessGroup&)>;
    const std::pair<const char*, Call> calls[] = {
        {"broadcast", [&](const ProcessGroup& group) { broadcast(own, group); }},
        {"all_gather", [&](const ProcessGroup& group) { all_gather(parts, own, group); }},
        {"all_gather", [&](const ProcessGroup& group) { all_gather_into_tensor(torch::cat(parts), own, group); }},
        {"gather", [&](const ProcessGroup& group) { gather(empty_at_other(0), own, group); }},
        {"scatter", [&](const ProcessGroup& group) { scatter(own, empty_at_other(0), group); }},
        {"all_to_all",
         [&](const ProcessGroup& group) {
           all_to_all({parts[0], parts[1]}, {own, own}, group);
         }},
        {"all_to_all", [&](const ProcessGroup& group) { all_to_all_single(parts[0], own, group); }},
    };
    for (const auto& [name, call] : calls) {
      const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
      try {
        call(group);
        barrier(group);  // A root needs nobody.
        ADD_FAILURE() << name << ": types went together";
      } catch (const CollectiveMismatch& error) {
        for (const char* const type : {"(fp32, ", "(int32, "})
          EXPECT_NE(std::string(error.what()).find(name + std::string(type)), std::string::npos) << error.what();
      }
    }
  });
}

TEST(TensorExchangeAlone, OfAWorldOfOneCopies) {
  const ProcessGroup alone = init_process_group();
  const at::Tensor input = torch::arange(6);
  at::Tensor output = torch::zeros({6}, torch::kLong);
  for (const auto& make :
       {+[](const at::Tensor&in, const at::Tensor&out, const ProcessGroup&group) { gather({out}, in, group); },
        +[](const at::Tensor&in, const at::Tensor&out, const ProcessGroup&group) { scatter(out, {in}, group); },
        +[](const at::Tensor&in, const at::Tensor&out, const ProcessGroup&group) {
          reduce_scatter(out, {in}, group, {.op = c10d::ReduceOp::AVG});
        },
        +[](const at::Tensor&in, const at::Tensor&out, const ProcessGroup&group) {
          all_to_all_single(out, in, group, {.async_op = true})->wait();
        }}) {
    output.zero_();
    make(input, output, alone);
    EXPECT_TRUE(torch::equal(output, input));
  }
}

}  // namespace
}  // namespace retinue
