#include <gtest/gtest.h>

#include "collective/reduction_check.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

class AllReduceGrid : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, AllReduceGrid, testing::Range(1, 10));

TEST_P(AllReduceGrid, HasTheBitsOfTheSerialLoop) {
  run_ranks(GetParam(),
            [](const JobGroup& group) {
              Communicator communicator(group);
              std::uint64_t seed = 0;
              for_each_type([&]<typename T>(T) {
                for (const ReduceOp op : kOps)
                  for (const std::size_t count : {0, 1, 2, 3, 5, 8, 17, 63, 65, 255, 1000, 4099, 16383, 70001})
                    for (const Place place : kPlaces) check_all_reduce<T>(communicator, op, count, place, ++seed);
              });
            },
            {.timeout = std::chrono::minutes(25)});
}

TEST_P(AllReduceGrid, HandlesMillionsOfElements) {
  run_ranks(GetParam(),
            [](const JobGroup& group) {
              Communicator communicator(group);
              for (const Place place : kPlaces) {
                check_all_reduce<float>(communicator, ReduceOp::kSum, 1000003, place, 11);
                check_all_reduce<Float16>(communicator, ReduceOp::kAvg, 1000003, place, 12);
              }
            },
            {.timeout = std::chrono::minutes(25)});
}

}  // namespace
}  // namespace retinue::test
