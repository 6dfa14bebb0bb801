// More than a call can have of private memory, which nobody touches.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "retinue/collective/communicator.h"
#include "support/ranks.h"
#include "support/usage_error.h"

namespace retinue::test {
namespace {

/// No member reads or writes a byte before it has counted the rounds.
std::byte* nowhere(std::uintptr_t part) {
  return reinterpret_cast<std::byte*>((part + 1) << 44);
}

/// One part of these takes 2^24 rounds of a chunk at least.
constexpr std::size_t kTooMany = std::size_t{1} << 41;

std::vector<CollectiveCall> calls_of_too_much() {
  const std::size_t floats = kTooMany / sizeof(float);
  return {CollectiveCall::broadcast(nowhere(0), kTooMany, 0),
          CollectiveCall::all_gather(nowhere(0), nowhere(1), kTooMany),
          CollectiveCall::gather(nowhere(0), nowhere(1), kTooMany, 1),
          CollectiveCall::scatter(nowhere(0), nowhere(1), kTooMany, 1),
          CollectiveCall::all_to_all(nowhere(0), nowhere(1), kTooMany),
          CollectiveCall::all_reduce(nowhere(0), floats, Dtype::kFloat32, ReduceOp::kSum),
          CollectiveCall::reduce(nowhere(0), nowhere(1), floats, Dtype::kFloat32, ReduceOp::kSum, 0),
          CollectiveCall::scan(nowhere(0), nowhere(1), floats, Dtype::kFloat32, ReduceOp::kSum),
          CollectiveCall::all_reduce(nowhere(0), floats, reduce_function<std::plus<float>{}, float>())};
}

class TooMuch : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, TooMuch, testing::Values(2, 3));

TEST_P(TooMuch, OfPrivateMemoryIsRefusedByAllAlike) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    Communicator communicator(group);
    for (const CollectiveCall& call : calls_of_too_much()) {
      const auto refusal = [&](auto make) { return usage_error_of(make); };
      const std::string wanted = std::string(name_of(call.kind)) + ": ";
      for (const std::string& text :
           {refusal([&] { communicator.run(call); }), refusal([&] { communicator.start(call).wait(); })}) {
        EXPECT_EQ(text.find(wanted), 0u) << text;
        EXPECT_NE(text.find("from private memory are too many for one call; use job memory"), std::string::npos)
            << text;
      }
      int sum = 1;  // The group is as good as before.
      communicator.all_reduce(std::span(&sum, 1));
      EXPECT_EQ(sum, communicator.size());
    }
  });
}

}  // namespace
}  // namespace retinue::test
