#include <gtest/gtest.h>
#include <time.h>

#include <chrono>
#include <span>
#include <thread>

#include "retinue/collective/communicator.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

using namespace std::chrono_literals;

std::chrono::nanoseconds cpu_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

/// CPU time that rank 0 takes to wait for a rank that is late time and again.
std::chrono::nanoseconds cost_of_waiting(const JobGroup& group, Waiting waiting) {
  Communicator communicator(group, {.waiting = waiting});
  std::chrono::nanoseconds cost{};
  for (int i = 0; i < 20; ++i) {
    communicator.barrier();
    if (group.rank == 1) std::this_thread::sleep_for(5ms);
    const auto before = cpu_time();
    communicator.barrier();
    cost += cpu_time() - before;
  }
  return cost;
}

TEST(Waiting, TakesLessCpuTheMorePoliteItIs) {
  run_ranks(2, [](const JobGroup& group) {
    const auto polite = cost_of_waiting(group, Waiting::kPolite);
    const auto eager = cost_of_waiting(group, Waiting::kLatency);
    if (group.rank == 0) {
      EXPECT_LT(3 * polite, eager) << polite.count() << " and " << eager.count() << " ns";
    }
  });
}

TEST(Waiting, MayDifferBetweenMembers) {
  for (const int ranks : {2, 3, 5})
    run_ranks(ranks, [ranks](const JobGroup& group) {
      constexpr Waiting kAll[] = {Waiting::kPolite, Waiting::kLatency, Waiting::kBalanced};
      Communicator communicator(group, {.waiting = kAll[group.rank % 3]});
      for (int i = 0; i < 200; ++i) {
        int sum = group.rank + i;
        communicator.all_reduce(std::span(&sum, 1));
        ASSERT_EQ(sum, ranks * (ranks - 1) / 2 + ranks * i);
      }
    });
}

}  // namespace
}  // namespace retinue::test
