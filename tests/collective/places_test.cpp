// Groups whose members don't share a last cache, or a memory node, as the options say.
#include "collective/board/places.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "collective/board/domains.h"
#include "collective/exchange_model.h"
#include "collective/group_mix.h"
#include "collective/session/session.h"
#include "os/machine/cpus.h"
#include "support/fake_cpus.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

using Ranks = std::vector<int>;

TEST(Domains, AreLedByTheirLowestRanks) {
  const Domains domains = domains_of(Ranks{7, 3, 7, 3, 5});
  EXPECT_EQ(domains.leader_of, Ranks({0, 1, 0, 1, 4}));
  EXPECT_EQ(domains.leaders, Ranks({0, 1, 4}));
  EXPECT_EQ(domains.members_of(1), Ranks({1, 3}));
  EXPECT_FALSE(domains.is_one());
}

TEST(Domains, AreOneWhereOneIsNotKnown) {
  EXPECT_TRUE(domains_of(Ranks{7, kUnknownDomain, 3}).is_one());
  EXPECT_TRUE(domains_of(Ranks{7, 7, 7}).is_one());
  EXPECT_EQ(domains_of(Ranks{1, kUnknownDomain}).leader_of, Ranks({0, 0}));
}

TEST(Domains, OfFourNodesOf32CoresAreFour) {
  const FourNodes machine;
  Ranks caches;
  for (int cpu = 0; cpu < FourNodes::kCpus; ++cpu)
    caches.push_back(common_place({cpu}, machine.folder()).cache.value_or(kUnknownDomain));
  EXPECT_EQ(domains_of(caches).leaders, Ranks({0, 8, 16, 24}));
  EXPECT_EQ(domains_of(caches).members_of(8), Ranks({8, 9, 10, 11, 12, 13, 14, 15}));
}

/// Members relay in groups of any size, also where they share CPUs.
class Relayed : public testing::Test {
 protected:
  void SetUp() override { setenv("RETINUE_PATH_TABLE", "one_level=0", 1); }
  void TearDown() override { unsetenv("RETINUE_PATH_TABLE"); }
};

CommunicatorOptions at(int place) {
  return {.cache_domain = place, .memory_node = place};
}

TEST_F(Relayed, LinesComeByTheLeader) {
  run_ranks(5, [](const JobGroup& group) {
    Session session(group, at(group.rank % 2));
    ASSERT_TRUE(session.places().span_caches());
    ASSERT_TRUE(session.places().span_nodes());
    // Who doesn't find lines by the leader soon takes others' own; where CPUs are busy that may be so for long.
    constexpr std::uint64_t kMostCalls = 100'000;
    bool have_all_relayed = false;
    std::uint64_t relayed = 0;
    for (std::uint64_t value = 0; value < kMostCalls && (value < 500 || !have_all_relayed); ++value) {
      const auto data_of = [value](int rank) { return value * 10 + static_cast<std::uint64_t>(rank); };
      std::uint64_t data = data_of(group.rank) * 10 + relayed;
      const CollectiveCall what = CollectiveCall::all_reduce(&data, 1, Dtype::kUint64, ReduceOp::kSum);
      const Call call = checked_call(what, group.rank, 5, CallSite());
      session.publish(call);
      session.await_arrival(call);
      have_all_relayed = true;
      for (int rank = 0; rank < 5; ++rank) {
        const LineData& line = session.line(rank);
        const Line& original = session.board().member(rank).lines[session.sequence() % kLines];
        if (&line != &original) relayed = 1;
        ASSERT_EQ(line.sequence.load(), session.sequence());
        ASSERT_EQ(line.inline_data[0].load() / 10, data_of(rank));
        have_all_relayed &= line.inline_data[0].load() % 10 == 1;
        ASSERT_EQ(line.head.load(), original.head.load());
        ASSERT_EQ(line.count.load(), 1u);
      }
      session.end_call();
    }
    EXPECT_TRUE(have_all_relayed);
  });
}

TEST_F(Relayed, GroupsAgreeWithTheModel) {
  for (const int ranks : {2, 3, 8})
    run_ranks(ranks, [](const JobGroup& group) {
      GroupMix mix(group, 21, at(group.rank * 7 % 3));
      mix.run(is_sanitized() ? 200 : 1500);
    });
}

TEST_F(Relayed, GroupsAgreeWithTheModelOverThreads) {
  run_rank_threads(6, [](const JobGroup& group) {
    GroupMix mix(group, 22, at(group.rank / 2));
    mix.run(is_sanitized() ? 200 : 1000);
  });
}

TEST_F(Relayed, MismatchesAreNoticed) {
  run_ranks(4, [](const JobGroup& group) {
    Communicator communicator(group, at(group.rank / 2));
    for (int i = 0; i < 100; ++i) communicator.barrier();
    int value = 0;
    try {
      if (group.rank == 3)
        communicator.all_reduce(std::span(&value, 1));
      else
        communicator.barrier();
      ADD_FAILURE() << "no mismatch";
    } catch (const CollectiveMismatch& error) {
      EXPECT_NE(std::string(error.what()).find("all_reduce"), std::string::npos) << error.what();
    }
  });
}

/// By each path, to and from the memory of other nodes.
void exchange_all(const JobGroup& group, const CommunicatorOptions& options, std::size_t most) {
  Communicator communicator(group, options);
  std::uint64_t seed = 0;
  for (const CollectiveKind kind : kDataKinds)
    for (const std::size_t count : {std::size_t{1}, std::size_t{100}, std::size_t{3000}, most})
      for (const Place place : {Place::kPrivate, Place::kJob}) {
        ++seed;
        const ExchangeCase c{.kind = kind,
                             .count = count,
                             .input_place = place,
                             .output_place = place,
                             .root = static_cast<int>(seed * 7) % communicator.size(),
                             .seed = seed};
        check_exchange_of_its_kind(communicator, c);
      }
}

class SpreadOverNodes : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SpreadOverNodes, testing::Values(2, 3, 7));

TEST_P(SpreadOverNodes, ExchangesEachKindInEachWay) {
  run_ranks(GetParam(), [](const JobGroup& group) { exchange_all(group, at(group.rank), 70'000); });
}

TEST_F(Relayed, FourNodesOf32CoresExchangeEachKindInEachWay) {
  run_ranks(32,
            [](const JobGroup& group) {
              const FourNodes machine;
              const CommonPlace place = common_place({group.rank}, machine.folder());
              exchange_all(group, {.cache_domain = place.cache, .memory_node = place.node}, 9000);
            },
            {.memory_bytes = std::size_t{4} << 30});
}

}  // namespace
}  // namespace retinue::test
