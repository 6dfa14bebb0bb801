#include "collective/group_mix.h"

#include "support/ranks.h"

namespace retinue::test {
namespace {

class OverlappingGroups : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, OverlappingGroups, testing::Values(1, 2, 3, 4, 8, 16));

TEST_P(OverlappingGroups, AgreeWithTheModelInRandomOrder) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    GroupMix mix(group, 11);
    mix.run(is_sanitized() ? 200 : 2000);
  });
}

TEST_P(OverlappingGroups, AgreeWithTheModelOverThreads) {
  run_rank_threads(GetParam(), [](const JobGroup& group) {
    GroupMix mix(group, 12);
    mix.run(is_sanitized() ? 200 : 1000);
  });
}

}  // namespace
}  // namespace retinue::test
