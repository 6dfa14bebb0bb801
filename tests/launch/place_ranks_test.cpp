#include "launch/placement/place_ranks.h"

#include <gtest/gtest.h>

#include <set>

#include "retinue/base/error.h"
#include "support/usage_error.h"

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

/// Two sockets with two memory nodes each; a node has 4 cores of two hardware threads, of which 2 and 2 share a cache.
std::vector<Cpu> four_nodes() {
  std::vector<Cpu> cpus;
  for (int thread = 0; thread < 2; ++thread)
    for (int core = 0; core < 16; ++core) cpus.push_back({thread * 16 + core, core, core / 8, core / 4, core / 2 * 2});
  return cpus;
}

std::vector<int> range(int first, int last) {
  std::vector<int> numbers;
  for (int number = first; number <= last; ++number) numbers.push_back(number);
  return numbers;
}

std::vector<int> both(std::vector<int> first, const std::vector<int>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TEST(NumaPlaces, NodesAreDealtOutInTheOrderOfRanks) {
  const std::vector<int> nodes[] = {both(range(0, 3), range(16, 19)), both(range(4, 7), range(20, 23)),
                                    both(range(8, 11), range(24, 27)), both(range(12, 15), range(28, 31))};
  const auto places = [](int nprocs) { return retinue::place_ranks(four_nodes(), nprocs, CpuAffinity::node(), 0); };
  EXPECT_EQ(places(4), Places({nodes[0], nodes[1], nodes[2], nodes[3]}));
  EXPECT_EQ(places(2), Places({nodes[0], nodes[2]}));
  EXPECT_EQ(places(5), Places({nodes[0], nodes[0], nodes[1], nodes[2], nodes[3]}));
}

TEST(NumaPlaces, SocketHasAllItsNodes) {
  const std::vector<int> first = both(range(0, 7), range(16, 23));
  const std::vector<int> second = both(range(8, 15), range(24, 31));
  EXPECT_EQ(retinue::place_ranks(four_nodes(), 4, CpuAffinity::socket(), 0), Places({first, first, second, second}));
}

TEST(NumaPlaces, ExclusiveDividesTheCoresOfANode) {
  // Seven ranks: nodes 0, 0, 1, 1, 2, 2, 3.
  const Places places = retinue::place_ranks(four_nodes(), 7, CpuAffinity::exclusive(), 0);
  EXPECT_EQ(places[0], std::vector<int>({0, 1, 16, 17}));
  EXPECT_EQ(places[1], std::vector<int>({2, 3, 18, 19}));
  EXPECT_EQ(places[6], std::vector<int>({12, 13, 14, 15, 28, 29, 30, 31}));
  // What remains goes to the first ranks.
  EXPECT_EQ(retinue::place_ranks(machine(1, 5, 1), 3, CpuAffinity::exclusive(), 0), Places({{0, 1}, {2, 3}, {4}}));
}

TEST(NumaPlaces, CoreComplexesAreTakenInTurnLargeOnesFirst) {
  const Places places = retinue::place_ranks(four_nodes(), 12, CpuAffinity::core_complex(), 0);
  EXPECT_EQ(places[0], std::vector<int>({0, 1, 16, 17}));
  EXPECT_EQ(places[1], std::vector<int>({2, 3, 18, 19}));
  EXPECT_EQ(places[2], places[0]) << "there are two on a node, so the third rank shares the first";
  EXPECT_EQ(places[3], std::vector<int>({4, 5, 20, 21}));
  const std::vector<Cpu> uneven = {{0, 0, 0, 0, 0}, {1, 1, 0, 0, 1}, {2, 2, 0, 0, 1}};
  EXPECT_EQ(retinue::place_ranks(uneven, 2, CpuAffinity::core_complex(), 0), Places({{1, 2}, {0}}));
}

TEST(NumaPlaces, NodesWithoutUsableCpusDontCount) {
  const std::vector<Cpu> allowed = {{9, 9, 1, 2, 8}, {12, 12, 1, 3, 12}, {13, 13, 1, 3, 12}};
  EXPECT_EQ(retinue::place_ranks(allowed, 2, CpuAffinity::node(), 0), Places({{9}, {12, 13}}));
  EXPECT_EQ(retinue::place_ranks(allowed, 2, CpuAffinity::socket(), 0), Places({{9, 12, 13}, {9, 12, 13}}));
}

std::string numa_error_of(const std::vector<Cpu>& cpus, int nprocs, const CpuAffinity& affinity) {
  return retinue::test::usage_error_of([&] { retinue::place_ranks(cpus, nprocs, affinity, 0); });
}

TEST(NumaPlaces, SayWhatIsMissing) {
  const std::string few = numa_error_of(four_nodes(), 20, CpuAffinity::exclusive());
  EXPECT_NE(few.find("memory node 0 has 4 cores that this process may use, but 5 ranks are to run there (0 to 4)"),
            std::string::npos)
      << few;
  const std::string hidden = numa_error_of(machine(1, 2, 1), 2, CpuAffinity::core_complex());
  EXPECT_NE(hidden.find("/sys/devices/system/cpu/cpu0/cache"), std::string::npos) << hidden;
}

TEST(ThreadShares, RanksThatShareCpusShareThreads) {
  using Kind = CpuAffinity::Kind;
  using Shares = std::vector<int>;
  const auto none = std::nullopt;
  EXPECT_EQ(retinue::thread_shares({{}, {}, {}}, 8, Kind::kNone, none), Shares({2, 2, 2}));
  EXPECT_EQ(retinue::thread_shares({{}, {}, {}}, 2, Kind::kNone, none), Shares({1, 1, 1}));
  EXPECT_EQ(retinue::thread_shares({{}, {}}, 8, Kind::kNone, 2.5), Shares({1, 1}));
  EXPECT_EQ(retinue::thread_shares({{0, 1, 2, 3}, {0, 1, 2, 3}, {4, 5, 6}}, 8, Kind::kNode, none), Shares({2, 2, 3}));
  EXPECT_EQ(retinue::thread_shares({{0, 1, 2, 3}, {4, 5, 6, 7}}, 8, Kind::kExclusive, 2.0), Shares({1, 1}));
  EXPECT_EQ(retinue::thread_shares({{0, 1}, {1, 2, 3}}, 8, Kind::kLists, 2.0), Shares({2, 3}));
  // Thirds add up.
  EXPECT_EQ(retinue::thread_shares({{0, 1, 2}, {0, 1, 2}, {0, 1, 2}}, 3, Kind::kNode, none), Shares({1, 1, 1}));
}

TEST(RankPlaces, AreThoseOfThisMachine) {
  for (const auto& affinity : {CpuAffinity::none(), CpuAffinity::node(), CpuAffinity::socket()}) {
    const auto places = retinue::rank_places(affinity, 1);
    ASSERT_EQ(places.size(), 1u);
    EXPECT_FALSE(places[0].cpus.empty());
    EXPECT_GE(places[0].threads, 1);
  }
  EXPECT_EQ(retinue::rank_places(CpuAffinity::none(), 2, 3)[1].threads, 3);
  EXPECT_THROW(retinue::rank_places(CpuAffinity::none(), 0), retinue::UsageError);
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
