#include <gtest/gtest.h>

#include "collective/reduction_check.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

class AllReduce : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, AllReduce, testing::Range(1, 10));

TEST_P(AllReduce, HasTheBitsOfTheSerialLoop) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    Communicator communicator(group);
    std::uint64_t seed = 0;
    for_each_type([&]<typename T>(T) {
      for (const ReduceOp op : kOps)
        for (const std::size_t count : {0, 1, 3, 17, 1000})
          for (int repeat = 0; repeat < 2; ++repeat, ++seed)
            check_all_reduce<T>(communicator, op, count, kPlaces[seed % std::size(kPlaces)], seed);
    });
  });
}

TEST_P(AllReduce, HasTheBitsOfTheSerialLoopForLargeBuffers) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    Communicator communicator(group);
    std::uint64_t seed = 1000;
    for (const Place place : kPlaces) {
      if (is_sanitized() && place != kPlaces[communicator.size() % std::size(kPlaces)]) continue;
      check_all_reduce<float>(communicator, ReduceOp::kSum, 70001, place, ++seed);
      check_all_reduce<BFloat16>(communicator, ReduceOp::kAvg, 70001, place, ++seed);
      check_all_reduce<double>(communicator, ReduceOp::kMax, 9973, place, ++seed);
      check_all_reduce<std::int8_t>(communicator, ReduceOp::kProduct, 131071, place, ++seed);
    }
  });
}

TEST(AllReduceOfTwo, HandlesAMillionElements) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    const std::size_t count = is_sanitized() ? 200003 : 1000003;
    for (const Place place : kPlaces) check_all_reduce<float>(communicator, ReduceOp::kSum, count, place, 5);
  });
}

TEST(AllReduceOfTwo, KeepsManyCallsInStep) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    const int calls = is_sanitized() ? 2000 : 20000;
    for (int i = 0; i < calls; ++i) {
      // Sizes from inline to chunked, so that paths follow each other in all orders.
      const std::size_t count = (std::size_t{1} << (i * 7 % 13)) + static_cast<std::size_t>(i % 3);
      std::vector<std::int32_t> data(count, i + group.rank);
      communicator.all_reduce(std::span(data), ReduceOp::kSum);
      ASSERT_EQ(data.front(), 2 * i + 1);
      ASSERT_EQ(data.back(), 2 * i + 1);
    }
  });
}

TEST(AllReduceUsage, RefusesWhatCannotBe) {
  run_ranks(1, [](const JobGroup& group) {
    Communicator communicator(group);
    EXPECT_THROW(communicator.all_reduce(nullptr, 1, Dtype::kFloat32, ReduceOp::kSum), UsageError);
    float x = 1;
    EXPECT_THROW(communicator.all_reduce(&x, std::size_t(1) << 62, Dtype::kFloat64, ReduceOp::kSum), UsageError);
    EXPECT_THROW(communicator.broadcast(&x, 4, 1), UsageError);
    EXPECT_THROW(communicator.broadcast(&x, 4, -1), UsageError);
    communicator.all_reduce(nullptr, 0, Dtype::kFloat32, ReduceOp::kSum);  // A usage error doesn't poison the group.
  });
}

}  // namespace
}  // namespace retinue::test
