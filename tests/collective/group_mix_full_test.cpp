#include "collective/group_mix.h"

#include "support/ranks.h"

namespace retinue::test {
namespace {

class OverlappingGroupsSoak : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, OverlappingGroupsSoak, testing::Values(2, 4, 7, 16, 64));

TEST_P(OverlappingGroupsSoak, AgreeWithTheModelInRandomOrder) {
  run_ranks(GetParam(),
            [](const JobGroup& group) {
              for (unsigned seed = 0; seed < 10; ++seed) {
                GroupMix mix(group, seed);
                mix.run((is_sanitized() ? 4000 : 40000) / (group.process_slots.size() == 64 ? 10 : 1));
              }
            },
            {.timeout = std::chrono::minutes(28), .memory_bytes = std::size_t{4} << 30});
}

TEST_P(OverlappingGroupsSoak, AgreeWithTheModelOverThreads) {
  run_rank_threads(GetParam(),
                   [](const JobGroup& group) {
                     GroupMix mix(group, 100);
                     mix.run(is_sanitized() ? 1000 : 10000);
                   },
                   {.timeout = std::chrono::minutes(28), .memory_bytes = std::size_t{4} << 30});
}

}  // namespace
}  // namespace retinue::test
