// Tensors that don't lie in rows, or are of types that few use, and numbers that are none.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <string>
#include <vector>

#include "retinue/torch/process_group.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "torch/backend/shm_backend.h"
#include "torch/contribution.h"

namespace retinue {
namespace {

using test::contribution;
using test::run_ranks;
using test::says;
using test::usage_error_of;

constexpr int kLayoutRanks = 3;

at::Tensor filled(int rank, at::IntArrayRef sizes) {
  return contribution(rank, sizes, at::kFloat);
}
at::Tensor sum_of_all(at::IntArrayRef sizes) {
  return filled(0, sizes) + filled(1, sizes) + filled(2, sizes);
}

/// A tensor of these sizes that isn't contiguous: every second column of a larger one.
at::Tensor sparse(at::IntArrayRef sizes) {
  const at::Tensor tensor = torch::full({sizes[0], 2 * sizes[1]}, -77.f).slice(1, 0, 2 * sizes[1], 2);
  EXPECT_FALSE(tensor.is_contiguous());
  return tensor;
}
at::Tensor sparse_copy(const at::Tensor& values) {
  return sparse(values.sizes()).copy_(values);
}

/// Completes a call of either way.
void complete(const Work& work) {
  if (work) work->wait();
}

class Layouts : public testing::TestWithParam<bool> {
 protected:
  /// Calls body(group, rank) on all ranks.
  template <typename Body>
  static void run(Body body) {
    run_ranks(kLayoutRanks, [&](const JobGroup& members) { body(init_process_group(members), members.rank); });
  }
};
INSTANTIATE_TEST_SUITE_P(Asynchronous, Layouts, testing::Bool());

TEST_P(Layouts, OfAnyStridesAreReduced) {
  run([](const ProcessGroup& group, int rank) {
    const at::Tensor tensor = sparse_copy(filled(rank, {5, 6}));
    complete(reduce(tensor, group, {.dst = 1, .async_op = GetParam()}));
    EXPECT_TRUE(torch::equal(tensor, rank == 1 ? sum_of_all({5, 6}) : filled(rank, {5, 6})));
  });
}

TEST_P(Layouts, OfAnyStridesAreGathered) {
  run([](const ProcessGroup& group, int rank) {
    const at::Tensor all = sparse({kLayoutRanks * 4, 3});
    complete(all_gather_into_tensor(all, sparse_copy(filled(rank, {4, 3})), group, {.async_op = GetParam()}));
    EXPECT_TRUE(torch::equal(all, torch::cat({filled(0, {4, 3}), filled(1, {4, 3}), filled(2, {4, 3})})));
  });
}

TEST_P(Layouts, OfAnyStridesAreReducedAndScattered) {
  run([](const ProcessGroup& group, int rank) {
    const at::Tensor own = sparse({4, 3});
    complete(
        reduce_scatter_tensor(own, sparse_copy(filled(rank, {kLayoutRanks * 4, 3})), group, {.async_op = GetParam()}));
    EXPECT_TRUE(torch::equal(own, sum_of_all({kLayoutRanks * 4, 3}).slice(0, 4 * rank, 4 * rank + 4)));
  });
}

TEST_P(Layouts, OfAnyStridesAreExchanged) {
  run([](const ProcessGroup& group, int rank) {
    const at::Tensor from_all = sparse({kLayoutRanks * 2, 5});
    complete(
        all_to_all_single(from_all, sparse_copy(filled(rank, {kLayoutRanks * 2, 5})), group, {.async_op = GetParam()}));
    for (int from = 0; from < kLayoutRanks; ++from)
      EXPECT_TRUE(torch::equal(from_all.slice(0, 2 * from, 2 * from + 2),
                               filled(from, {kLayoutRanks * 2, 5}).slice(0, 2 * rank, 2 * rank + 2)));
  });
}

class TensorValues : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, TensorValues, testing::Values("shm", "gloo"));

TEST_P(TensorValues, NanComesThroughAsInTorch) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float infinity = std::numeric_limits<float>::infinity();
    const at::Tensor of[] = {torch::tensor({nan, 1.f, nan, infinity, -infinity, 0.f}),
                             torch::tensor({2.f, nan, nan, -infinity, nan, -1.f})};
    for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      const at::Tensor first = of[0].to(type);
      const at::Tensor second = of[1].to(type);
      const std::pair<c10d::ReduceOp::RedOpType, at::Tensor> wanted[] = {
          {c10d::ReduceOp::MIN, torch::minimum(first, second)},
          {c10d::ReduceOp::MAX, torch::maximum(first, second)},
          {c10d::ReduceOp::SUM, first + second}};
      for (const auto& [op, result] : wanted) {
        at::Tensor own = of[members.rank].to(type).clone();
        all_reduce(own, group, {.op = op});
        EXPECT_TRUE(torch::allclose(own, result, 0, 0, /*equal_nan=*/true))
            << at::toString(type) << " op " << static_cast<int>(op) << ": " << own;
      }
    }
  });
}

/// Computed in int64, which holds what torch itself adds of few of these types.
TEST_P(TensorValues, OfUnsignedTypesAreReduced) {
  run_ranks(kLayoutRanks, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    const auto numbers = [](int rank) { return torch::arange(30, 63, torch::kInt64) * (rank + 2); };
    const at::Tensor sum = numbers(0) + numbers(1) + numbers(2);
    for (const auto type : {at::kByte, at::kUInt16, at::kUInt32, at::kUInt64}) {
      at::Tensor tensor = numbers(members.rank).to(type);
      all_reduce(tensor, group);
      // Of bytes it wraps.
      EXPECT_TRUE(torch::equal(tensor.to(at::kLong), type == at::kByte ? sum.remainder(256) : sum))
          << at::toString(type);
      tensor = numbers(members.rank).to(type);
      all_reduce(tensor, group, {.op = c10d::ReduceOp::MAX});
      EXPECT_TRUE(torch::equal(tensor.to(at::kLong), numbers(2))) << at::toString(type);
      const at::Tensor all = torch::empty({kLayoutRanks * 33}, torch::dtype(type));
      all_gather_into_tensor(all, numbers(members.rank).to(type), group);
      for (int rank = 0; rank < kLayoutRanks; ++rank)
        EXPECT_TRUE(
            torch::equal(all.slice(0, 33 * rank, 33 * rank + 33).to(at::kLong), numbers(rank).to(type).to(at::kLong)));
    }
  });
}

class Overlaps : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, Overlaps, testing::Values("shm", "gloo"));

/// Lists of two tensors of four elements each, of which some element lies in both.
std::vector<std::vector<at::Tensor>> overlapping_lists() {
  const at::Tensor whole = torch::zeros({24});
  const at::Tensor rows = whole.view({4, 6});
  return {
      {whole.narrow(0, 0, 4), whole.narrow(0, 0, 4)},
      {whole.narrow(0, 2, 4), whole.narrow(0, 0, 4)},
      {rows.select(1, 3), rows.select(1, 3)},  // A column.
      {rows.select(1, 3), rows.narrow(1, 2, 2).narrow(0, 1, 2)},
      {rows.select(0, 0).narrow(0, 0, 4), whole.as_strided({4}, {5})},
      {whole.narrow(0, 1, 4), at::from_blob(whole.data_ptr<float>() + 4, {4})},
  };
}

TEST_P(Overlaps, OfTensorsThatACallWritesAreRefused) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    const at::Tensor own = torch::ones({4});
    const std::string text = ": tensors 0 and 1 of its outputs overlap in memory";
    for (const std::vector<at::Tensor>& list : overlapping_lists()) {
      EXPECT_TRUE(says(usage_error_of([&] { all_gather(list, own, group); }), "all_gather" + text));
      EXPECT_TRUE(says(usage_error_of([&] { all_to_all(list, {own, own}, group); }), "all_to_all" + text));
      EXPECT_TRUE(says(usage_error_of([&] { all_reduce_coalesced(list, group); }), "all_reduce_coalesced" + text));
      EXPECT_TRUE(says(usage_error_of([&] { gather(list, own, group, {.dst = members.rank}); }), "gather" + text));
    }
    const std::string several = "several elements of tensor 0 ";
    const at::Tensor windows = torch::zeros({5}).as_strided({2, 4}, {1, 1});
    EXPECT_TRUE(says(usage_error_of([&] { all_gather_into_tensor(windows, own, group); }), several));
    EXPECT_TRUE(says(usage_error_of([&] { all_reduce(windows, group); }), several));
    EXPECT_NO_THROW(barrier(group));
  });
}

TEST_P(Overlaps, OfExtentsAloneAreNone) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    const at::Tensor matrix = torch::zeros({4, 3});
    const at::Tensor own = torch::arange(4.) + 10 * members.rank;
    all_gather({matrix.select(1, 2), matrix.select(1, 0)}, own, group);
    EXPECT_TRUE(torch::equal(matrix.select(1, 2), torch::arange(4.)));
    EXPECT_TRUE(torch::equal(matrix.select(1, 0), torch::arange(4.) + 10));
    EXPECT_TRUE(torch::equal(matrix.select(1, 1), torch::zeros({4})));
  });
}

TEST(ProcessGroupOptions, SayHowARankWaits) {
  for (const Waiting waiting : {Waiting::kLatency, Waiting::kPolite}) {
    run_ranks(2, [waiting](const JobGroup& members) {
      const ProcessGroup group = init_process_group(members, {.waiting = waiting});
      EXPECT_EQ(ShmBackend::of(*group)->waits().waiting, waiting);
      at::Tensor one = torch::ones({1});
      all_reduce(one, group);
      EXPECT_EQ(one.item<float>(), 2);
    });
  }
}

}  // namespace
}  // namespace retinue
