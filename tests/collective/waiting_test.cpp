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

/// Part of the time in which rank 0 waits, for a rank that is late time and again, for which it uses a CPU.
double cpu_share(const JobGroup& group, Waiting waiting) {
  Communicator communicator(group, {.waiting = waiting});
  std::chrono::duration<double> used{};
  std::chrono::duration<double> waited{};
  for (int i = 0; i < 40; ++i) {
    communicator.barrier();
    if (group.rank == 1) std::this_thread::sleep_for(3ms);
    const auto cpu_before = cpu_time();
    const auto before = std::chrono::steady_clock::now();
    communicator.barrier();
    used += cpu_time() - cpu_before;
    waited += std::chrono::steady_clock::now() - before;
  }
  return used / waited;
}

TEST(Waiting, IsAsleepWherePolite) {
  run_ranks(2, [](const JobGroup& group) {
    const double share = cpu_share(group, Waiting::kPolite);
    if (group.rank == 0) {
      EXPECT_LT(share, 0.25);  // Who spins for 2 ms comes to two thirds.
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
