// What code written for c10d expects of a group besides the collectives of the other tests: coalesced and sparse ones,
// its name, and what the profiler sees.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/torch/messages.h"
#include "retinue/torch/process_group.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "torch/libtorch_versions.h"

namespace retinue {
namespace {

using test::run_ranks;
using test::says;
using test::usage_error_of;

class C10dCalls : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, C10dCalls, testing::Values("shm", "gloo"));

void run_groups(std::initializer_list<int> sizes, const char* backend,
                const std::function<void(const ProcessGroup&)>& body) {
  for (const int size : sizes)
    run_ranks(size, [&](const JobGroup& members) {
      at::set_num_threads(1);
      body(init_process_group(members, {.backend = backend}));
    });
}

/// The i-th tensor of a rank, of a size of its own; not contiguous where i is odd.
at::Tensor own_tensor(int rank, int i) {
  const at::Tensor tensor = torch::arange(6. * (i + 1)).view({i + 1, 6}) + 100 * rank + 10 * i;
  return i % 2 == 0 ? tensor : tensor.t();
}

TEST_P(C10dCalls, AllgatherCoalesced) {
  run_groups({1, 2, 3}, GetParam(), [](const ProcessGroup& group) {
    constexpr int kTensors = 3;
    std::vector<at::Tensor> inputs;
    std::vector<std::vector<at::Tensor>> outputs(static_cast<std::size_t>(group->getSize()));
    for (int i = 0; i < kTensors; ++i) inputs.push_back(own_tensor(group->getRank(), i));
    for (auto& of_rank : outputs)
      for (const at::Tensor& input : inputs) of_rank.push_back(torch::zeros_like(input));
    for (const bool async_op : {true, false}) {
      c10d::AllgatherOptions options;
      options.asyncOp = async_op;
      group->allgather_coalesced(outputs, inputs, options)->wait();
      for (int rank = 0; rank < group->getSize(); ++rank)
        for (int i = 0; i < kTensors; ++i) {
          at::Tensor& output = outputs[static_cast<std::size_t>(rank)][static_cast<std::size_t>(i)];
          EXPECT_TRUE(torch::equal(output, own_tensor(rank, i))) << "rank " << rank << ", tensor " << i;
          output.zero_();
        }
    }
    outputs.back().pop_back();
    EXPECT_TRUE(says(usage_error_of([&] { group->allgather_coalesced(outputs, inputs); }), "3 inputs, and 2 outputs"));
    outputs.pop_back();
    EXPECT_TRUE(says(usage_error_of([&] { group->allgather_coalesced(outputs, inputs); }), "lists of outputs"));
  });
}

TEST_P(C10dCalls, CoalescedTensorsOfAllRanks) {
  run_groups({1, 2, 3}, GetParam(), [](const ProcessGroup& group) {
    const int ranks = group->getSize();
    std::vector<at::Tensor> own;
    std::vector<at::Tensor> all;
    for (int i = 0; i < 3; i += 2) own.push_back(own_tensor(group->getRank(), i));
    for (const at::Tensor& tensor : own) all.push_back(torch::zeros({ranks * tensor.size(0), tensor.size(1)}));
    std::invoke(libtorch::kAllGatherSingleCoalesced, *group, all, own, c10d::AllgatherOptions())->wait();
    for (int rank = 0; rank < ranks; ++rank)
      for (std::size_t i = 0; i < all.size(); ++i)
        EXPECT_TRUE(torch::equal(all[i].chunk(ranks)[static_cast<std::size_t>(rank)],
                                 own_tensor(rank, 2 * static_cast<int>(i))));
    // Each rank gives the same now, so that the sum is one rank's part as often as there are ranks.
    std::invoke(libtorch::kReduceScatterSingleCoalesced, *group, own, all, c10d::ReduceScatterOptions())->wait();
    for (std::size_t i = 0; i < own.size(); ++i)
      EXPECT_TRUE(torch::equal(own[i], ranks * own_tensor(group->getRank(), 2 * static_cast<int>(i))));
    all.pop_back();
    EXPECT_TRUE(says(usage_error_of([&] {
                       std::invoke(libtorch::kAllGatherSingleCoalesced, *group, all, own, c10d::AllgatherOptions());
                     }),
                     "1 tensors of all ranks"));
  });
}

/// A rank's sparse matrix, of rows or of single elements, with an index that comes twice; none in rank 2's.
at::Tensor own_sparse(int rank, bool of_rows) {
  if (rank == 2) return torch::zeros({5, 3}).to_sparse(of_rows ? 1 : 2);
  const at::Tensor rows = torch::tensor({rank, 4, rank}, torch::kLong);
  if (of_rows) return torch::sparse_coo_tensor(rows.unsqueeze(0), torch::arange(9.).view({3, 3}) + rank, {5, 3});
  const at::Tensor columns = torch::tensor({1, rank, 1}, torch::kLong);
  return torch::sparse_coo_tensor(torch::stack({rows, columns}), torch::arange(3.) + rank, {5, 3});
}

TEST_P(C10dCalls, SumsOfSparseTensors) {
  run_groups({1, 2, 3}, GetParam(), [](const ProcessGroup& group) {
    for (const bool of_rows : {true, false})
      for (const bool async_op : {true, false})
        for (const at::ScalarType type : {at::kFloat, at::kLong}) {
          at::Tensor expected = torch::zeros({5, 3}, type);
          for (int rank = 0; rank < group->getSize(); ++rank) expected += own_sparse(rank, of_rows).to_dense().to(type);
          const at::Tensor tensor = own_sparse(group->getRank(), of_rows).to(type);
          if (const Work work = all_reduce(tensor, group, {.async_op = async_op})) work->wait();
          EXPECT_TRUE(tensor.is_coalesced());
          EXPECT_TRUE(torch::equal(tensor.to_dense(), expected));
          std::vector<at::Tensor> by_c10d{own_sparse(group->getRank(), of_rows).to(type)};
          group->allreduce(by_c10d)->wait();
          EXPECT_TRUE(torch::equal(by_c10d[0].to_dense(), expected));
        }
  });
}

TEST_P(C10dCalls, RefuseSparseTensorsThatHaveNoSum) {
  run_groups({2}, GetParam(), [](const ProcessGroup& group) {
    const at::Tensor sparse = torch::eye(3).to_sparse();
    EXPECT_TRUE(says(usage_error_of([&] { all_reduce(sparse, group, {.op = c10d::ReduceOp::MAX}); }),
                     "only support ReduceOp::SUM"));
    EXPECT_TRUE(says(usage_error_of([&] { all_reduce(torch::eye(3).to_sparse_csr(), group); }), "layout"));
    const at::Tensor other = torch::eye(3 + group->getRank()).to_sparse();
    const std::string text = usage_error_of([&] { all_reduce(other, group); });
    EXPECT_TRUE(says(text, "rank 0 has a sparse tensor, Float of sizes [3, 3]")) << text;
    EXPECT_TRUE(says(text, "but rank 1 has Float of sizes [4, 4]")) << text;
    EXPECT_NO_THROW(all_reduce(sparse, group)) << "the group can be used on";
  });
}

TEST_P(C10dCalls, NameTheBackend) {
  run_groups({1, 2}, GetParam(), [](const ProcessGroup& group) {
    if (group->getSize() > 1) {
      EXPECT_EQ(group->getBackendName(), GetParam());
    }
    EXPECT_EQ(group->getBackendName(), group->getDefaultBackend()->getBackendName());
  });
}

using Shape = std::vector<std::int64_t>;

/// The shapes of the first inputs of what the profiler sees while `body` runs, by name: those of gloo's own operations,
/// too, on bytes.
std::map<std::string, std::vector<Shape>> profiled(const std::function<void()>& body) {
  namespace profiler = torch::autograd::profiler;
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO, /*report_input_shapes=*/true);
  const std::set<profiler::ActivityType> activities{profiler::ActivityType::CPU};
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  body();
  const auto result = profiler::disableProfiler();
  std::map<std::string, std::vector<Shape>> seen;
  for (const auto& event : result->events())
    seen[event.name()].push_back(event.shapes().empty() ? Shape() : event.shapes()[0]);
  return seen;
}

TEST_P(C10dCalls, AreSeenByTheProfiler) {
  run_groups({2}, GetParam(), [](const ProcessGroup& group) {
    const at::Tensor tensor = torch::ones({3, 5});
    const at::Tensor both = torch::ones({6, 5});
    const at::Tensor sparse = torch::eye(3).to_sparse();
    const int other = 1 - group->getRank();
    barrier(group);
    const auto seen = profiled([&] {
      all_reduce(tensor, group);
      all_reduce(sparse, group);
      all_gather_into_tensor(both, tensor, group, {.async_op = true})->wait();
      broadcast(both, group);
      barrier(group);
      const Work sent = isend(tensor, group, other);
      recv(tensor, group, other);
      sent->wait();
    });
    const auto shows = [&](const char* call, const std::optional<Shape>& shape) {
      const auto found = seen.find(std::string(GetParam()) + ":" + call);
      if (found == seen.end()) return false;
      const std::vector<Shape>& shapes = found->second;
      return !shape || std::find(shapes.begin(), shapes.end(), *shape) != shapes.end();
    };
    EXPECT_TRUE(shows("all_reduce", Shape{3, 5}));
    EXPECT_TRUE(shows("all_gather", Shape{3, 5}));
    EXPECT_TRUE(shows("broadcast", Shape{6, 5}));
    EXPECT_TRUE(shows("send", Shape{3, 5}));
    EXPECT_TRUE(shows("recv", Shape{3, 5}));
    EXPECT_TRUE(shows("sparse_all_reduce", std::nullopt));
    EXPECT_TRUE(shows("barrier", std::nullopt));
  });
}

}  // namespace
}  // namespace retinue
