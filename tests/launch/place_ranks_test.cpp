#include "launch/place_ranks.h"

#include <gtest/gtest.h>

#include <set>

#include "retinue/base/error.h"

namespace {

using retinue::Cpu;
using retinue::CpuAffinity;
using Places = std::vector<std::vector<int>>;

/// As Linux counts: the first hardware threads of all cores of all sockets, then the second ones.
std::vector<Cpu> machine(int packages, int cores, int threads) {
  std::vector<Cpu> cpus;
  for (int thread = 0; thread < threads; ++thread)
    for (int core = 0; core < packages * cores; ++core)
      cpus.push_back({thread * packages * cores + core, core, core / cores});
  return cpus;
}

TEST(PlaceRanks, NoneLeavesAllCpus) {
  EXPECT_EQ(retinue::place_ranks(machine(1, 4, 1), 2, CpuAffinity::none(), 0), Places({{}, {}}));
}

TEST(PlaceRanks, SpreadDividesCoresWithTheirHardwareThreads) {
  EXPECT_EQ(retinue::place_ranks(machine(1, 4, 2), 2, CpuAffinity::spread(), 0), Places({{0, 1, 4, 5}, {2, 3, 6, 7}}));
}

TEST(PlaceRanks, SpreadTakesSocketsInTurnAndPhysicalCoresFirst) {
  const std::vector<Cpu> two_sockets = machine(2, 4, 2);
  EXPECT_EQ(retinue::place_ranks(two_sockets, 2, CpuAffinity::spread(), 1), Places({{0}, {4}}));
  EXPECT_EQ(retinue::place_ranks(two_sockets, 2, CpuAffinity::spread(), 4), Places({{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(retinue::place_ranks(two_sockets, 2, CpuAffinity::spread(), 5),
            Places({{0, 1, 2, 3, 8}, {4, 5, 6, 7, 12}}));
  EXPECT_EQ(retinue::place_ranks(two_sockets, 4, CpuAffinity::spread(), 1), Places({{0}, {2}, {4}, {6}}));
}

TEST(PlaceRanks, SpreadUsesSecondHardwareThreadsLast) {
  EXPECT_EQ(retinue::place_ranks(machine(1, 2, 2), 3, CpuAffinity::spread(), 0), Places({{0}, {1}, {2}}));
  EXPECT_EQ(retinue::place_ranks(machine(1, 2, 2), 6, CpuAffinity::spread(), 2),
            Places({{0}, {1}, {2}, {3}, {0}, {1}}));
}

TEST(PlaceRanks, CompactTakesNeighbours) {
  const std::vector<Cpu> two_sockets = machine(2, 4, 2);
  EXPECT_EQ(retinue::place_ranks(two_sockets, 3, CpuAffinity::compact(), 2), Places({{0, 8}, {1, 9}, {2, 10}}));
  EXPECT_EQ(retinue::place_ranks(two_sockets, 2, CpuAffinity::compact(), 1), Places({{0}, {8}}));
  EXPECT_EQ(retinue::place_ranks(machine(1, 4, 1), 2, CpuAffinity::compact(), 0), Places({{0, 1}, {2, 3}}));
  EXPECT_EQ(retinue::place_ranks(machine(1, 2, 1), 4, CpuAffinity::compact(), 0), Places({{0}, {0}, {1}, {1}}));
  // More threads than CPUs: each rank its share.
  EXPECT_EQ(retinue::place_ranks(machine(1, 4, 1), 2, CpuAffinity::compact(), 4), Places({{0, 1}, {2, 3}}));
}

TEST(PlaceRanks, OnlyAllowedCpusAreUsed) {
  // A control group that leaves both hardware threads of core 2 and one of core 3, on the second socket.
  const std::vector<Cpu> allowed = {{2, 2, 1}, {3, 3, 1}, {6, 2, 1}};
  EXPECT_EQ(retinue::place_ranks(allowed, 2, CpuAffinity::spread(), 0), Places({{2, 6}, {3}}));
  EXPECT_EQ(retinue::place_ranks(allowed, 2, CpuAffinity::compact(), 0), Places({{2}, {3, 6}}));
}

TEST(PlaceRanks, EveryRankHasAPlaceAndRanksDontShareWhileThereIsRoom) {
  for (const auto& affinity : {CpuAffinity::spread(), CpuAffinity::compact()})
    for (const auto& cpus : {machine(1, 1, 1), machine(1, 3, 2), machine(2, 8, 2), machine(4, 5, 1)})
      for (int nprocs = 1; nprocs <= 40; ++nprocs)
        for (const int threads : {0, 1, 2, 7}) {
          const Places places = retinue::place_ranks(cpus, nprocs, affinity, threads);
          ASSERT_EQ(places.size(), static_cast<std::size_t>(nprocs));
          std::multiset<int> used;
          for (const auto& place : places) {
            EXPECT_FALSE(place.empty());
            used.insert(place.begin(), place.end());
          }
          if (static_cast<std::size_t>(nprocs) > cpus.size()) continue;
          for (const int cpu : used) EXPECT_EQ(used.count(cpu), 1u) << nprocs << " ranks, " << threads << " threads";
        }
}

std::string error_of(const Places& lists, int nprocs) {
  try {
    retinue::place_ranks(machine(1, 4, 1), nprocs, CpuAffinity::lists(lists), 0);
  } catch (const retinue::UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(PlaceRanks, ListsAreCheckedAgainstRanksAndCpus) {
  EXPECT_EQ(retinue::place_ranks(machine(1, 4, 1), 2, CpuAffinity::lists({{3, 1, 3}, {1}}), 0), Places({{1, 3}, {1}}));
  EXPECT_NE(error_of({{0}}, 2).find("1 lists of CPUs for 2 ranks"), std::string::npos);
  EXPECT_NE(error_of({{0}, {}}, 2).find("the list of rank 1 is empty"), std::string::npos);
  EXPECT_NE(error_of({{0}, {2, 4}}, 2).find("rank 1 is to run on CPU 4, but this process may only use CPUs 0-3"),
            std::string::npos);
}

}  // namespace
