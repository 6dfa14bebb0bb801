#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <random>

#include "os/sync/cpu_relax.h"
#include "retinue/collective/communicator.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

/// Keeps the CPU busy for a random while, mostly none, now and then long enough for the others to park.
void skew(std::mt19937& random) {
  const unsigned draw = random() % 100000;
  const unsigned spins = draw < 90000 ? 0 : draw < 99990 ? draw % 300 : 20000;
  for (unsigned i = 0; i < spins; ++i) cpu_relax();
}

void check_barriers(int size, int count) {
  run_ranks(size,
            [count](const JobGroup& group) {
              Communicator communicator(group);
              BlockHandle block;
              if (group.rank == 0) block = group.memory->allocate(sizeof(std::atomic<int>) * 64);
              communicator.broadcast(&block, sizeof block, 0);
              auto* rounds = group.memory->at<std::atomic<int>>(block.offset);
              rounds[group.rank].store(0);
              communicator.barrier();
              std::mt19937 random(static_cast<unsigned>(group.rank));
              for (int i = 1; i <= count; ++i) {
                skew(random);
                rounds[group.rank].store(i, std::memory_order_relaxed);
                communicator.barrier();
                // Nobody is behind, and nobody can be more than one barrier ahead.
                for (int rank = 0; rank < communicator.size(); ++rank) {
                  const int seen = rounds[rank].load(std::memory_order_relaxed);
                  ASSERT_TRUE(seen == i || seen == i + 1) << "rank " << rank << " at " << seen << " in barrier " << i;
                }
              }
              communicator.barrier();
              if (group.rank == 0) group.memory->release(block);
            },
            {.timeout = std::chrono::minutes(10)});
}

TEST(Barrier, HoldsAMillionTimesForTwoRanksOfRandomSkew) {
  check_barriers(2, is_sanitized() ? 50000 : 1000000);
}

TEST(Barrier, HoldsForThreeRanksOfRandomSkew) {
  check_barriers(3, is_sanitized() ? 5000 : 100000);
}

TEST(Barrier, MakesProgressWithFourTimesMoreRanksThanCpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  const int cpus = std::min(CPU_COUNT(&set), 4);
  check_barriers(4 * cpus, 5000);
}

TEST(Barrier, MakesProgressWhenAllRanksShareOneCpu) {
  run_ranks(3, [](const JobGroup& group) {
    cpu_set_t set;
    CPU_ZERO(&set);
    ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    int first = 0;
    while (!CPU_ISSET(first, &set)) ++first;
    CPU_ZERO(&set);
    CPU_SET(first, &set);
    ASSERT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
    Communicator communicator(group);
    for (int i = 0; i < 5000; ++i) communicator.barrier();
  });
}

}  // namespace
}  // namespace retinue::test
