// Reductions of tensors: types, operations, and the bits of their results.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "retinue/base/error.h"
#include "retinue/torch/process_group.h"
#include "retinue/torch/shared_tensor.h"
#include "support/ranks.h"
#include "torch/contribution.h"
#include "torch/libtorch_versions.h"

namespace retinue {
namespace {

using test::contribution;
using test::run_ranks;

/// The serial loop over ranks, in the precision that the contract names.
at::Tensor reduced(int ranks, at::IntArrayRef sizes, at::ScalarType type, c10d::ReduceOp::RedOpType op) {
  const bool half = type == at::kBFloat16 || type == at::kHalf;
  const at::ScalarType wide = half ? at::kFloat : type;
  at::Tensor sum = contribution(0, sizes, type).to(wide);
  for (int rank = 1; rank < ranks; ++rank) {
    const at::Tensor next = contribution(rank, sizes, type).to(wide);
    if (op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG) sum = sum + next;
    if (op == c10d::ReduceOp::MIN) sum = torch::minimum(sum, next);
    if (op == c10d::ReduceOp::MAX) sum = torch::maximum(sum, next);
    if (op == c10d::ReduceOp::PRODUCT) sum = sum * next;
  }
  if (op == c10d::ReduceOp::AVG) sum = at::isFloatingType(type) ? sum / ranks : sum.div(ranks, "trunc").to(type);
  return sum.to(type);
}

class TensorReduction : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, TensorReduction, testing::Values("shm", "gloo"));

TEST_P(TensorReduction, HasTheBitsOfTheSerialLoop) {
  run_ranks(3, [](const JobGroup& members) {
    at::set_num_threads(1);
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    for (const auto type :
         {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kInt, at::kLong, at::kShort, at::kChar}) {
      for (const auto op : {c10d::ReduceOp::SUM, c10d::ReduceOp::AVG, c10d::ReduceOp::MIN, c10d::ReduceOp::MAX,
                            c10d::ReduceOp::PRODUCT}) {
        for (const std::int64_t size : {0, 1, 17, 5000}) {
          SCOPED_TRACE(testing::Message() << at::toString(type) << " op " << static_cast<int>(op) << " size " << size);
          const at::Tensor expected = reduced(3, {size}, type, op);
          at::Tensor mine = contribution(members.rank, {size}, type);
          EXPECT_EQ(all_reduce(mine, group, {.op = op}), nullptr);
          EXPECT_TRUE(torch::equal(mine, expected));
          at::Tensor shared = shared_empty({size}, members.memory, type);
          shared.copy_(contribution(members.rank, {size}, type));
          all_reduce(shared, group, {.op = op, .async_op = true})->wait();
          EXPECT_TRUE(torch::equal(shared, expected));
        }
      }
    }
  });
}

TEST_P(TensorReduction, KeepsTheMeaningOfBoolAndComplex) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    at::Tensor any = torch::tensor({true, members.rank == 0, false});
    all_reduce(any, group);
    EXPECT_TRUE(torch::equal(any, torch::tensor({true, true, false})));
    at::Tensor every = torch::tensor({true, members.rank == 0, false});
    all_reduce(every, group, {.op = c10d::ReduceOp::PRODUCT});
    EXPECT_TRUE(torch::equal(every, torch::tensor({true, false, false})));
    EXPECT_THROW(all_reduce(any, group, {.op = c10d::ReduceOp::AVG}), UsageError);
    const auto number = [](int rank) {
      return torch::complex(torch::full({3}, 1.0 + rank), torch::full({3}, 2.0 - rank));
    };
    at::Tensor sum = number(members.rank);
    all_reduce(sum, group);
    EXPECT_TRUE(torch::equal(sum, number(0) + number(1)));
    at::Tensor conjugated = torch::conj(number(members.rank));
    all_reduce(conjugated, group);
    EXPECT_TRUE(torch::equal(conjugated.resolve_conj(), torch::conj(number(0) + number(1)).resolve_conj()));
    EXPECT_THROW(all_reduce(sum, group, {.op = c10d::ReduceOp::MAX}), UsageError);
    at::Tensor product = number(members.rank);
    all_reduce(product, group, {.op = c10d::ReduceOp::PRODUCT});
    EXPECT_TRUE(torch::equal(product, number(0) * number(1)));
  });
}

TEST_P(TensorReduction, IsOfBitsAndOfPremultipliedSumsToo) {
  run_ranks(3, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    const auto bits = [](int rank) { return torch::tensor({12 + rank, 10 << rank, 7}); };
    at::Tensor both = bits(members.rank);
    all_reduce(both, group, {.op = c10d::ReduceOp::BAND});
    EXPECT_TRUE(torch::equal(both, bits(0).bitwise_and(bits(1)).bitwise_and(bits(2))));
    at::Tensor any = bits(members.rank);
    all_reduce(any, group, {.op = c10d::ReduceOp::BOR});
    EXPECT_TRUE(torch::equal(any, bits(0).bitwise_or(bits(1)).bitwise_or(bits(2))));
    at::Tensor odd = bits(members.rank);
    all_reduce(odd, group, {.op = c10d::ReduceOp::BXOR});
    EXPECT_TRUE(torch::equal(odd, bits(0).bitwise_xor(bits(1)).bitwise_xor(bits(2))));
    EXPECT_THROW(all_reduce(torch::ones({2}), group, {.op = c10d::ReduceOp::BAND}), UsageError);
    at::Tensor weighted = torch::arange(5, torch::kFloat);
    all_reduce(weighted, group, {.op = libtorch::make_premul_sum(0.5 * (members.rank + 1))});
    EXPECT_TRUE(torch::equal(weighted, torch::arange(5, torch::kFloat) * 3));
    EXPECT_THROW(all_reduce(bits(0), group, {.op = libtorch::make_premul_sum(0.5)}), UsageError);
  });
}

}  // namespace
}  // namespace retinue
