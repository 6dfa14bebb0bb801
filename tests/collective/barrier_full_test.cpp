#include <gtest/gtest.h>

#include <random>

#include "os/sync/cpu_relax.h"
#include "retinue/collective/communicator.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

class BarrierSoak : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, BarrierSoak, testing::Values(2, 3, 8));

TEST_P(BarrierSoak, KeepsCountersInStep) {
  run_ranks(GetParam(),
            [](const JobGroup& group) {
              Communicator communicator(group);
              const int count = communicator.size() == 2 ? 5000000 : communicator.size() == 3 ? 1000000 : 100000;
              std::mt19937 random(static_cast<unsigned>(group.rank));
              for (int i = 0; i < count; ++i) {
                if (random() % 1000 == 0)
                  for (int k = 0; k < 5000; ++k) cpu_relax();
                std::int64_t sum = i;
                communicator.all_reduce(&sum, 1, Dtype::kInt64, ReduceOp::kSum);
                ASSERT_EQ(sum, static_cast<std::int64_t>(i) * communicator.size());
              }
            },
            {.timeout = std::chrono::minutes(20)});
}

}  // namespace
}  // namespace retinue::test
