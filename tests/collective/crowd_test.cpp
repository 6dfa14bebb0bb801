// Many more ranks than CPUs.
#include <gtest/gtest.h>

#include "collective/exchange_model.h"
#include "collective/group_mix.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

class Crowd : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Crowd, testing::Values(32, 64));

TEST_P(Crowd, ExchangesEachKindInEachWay) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    Communicator communicator(group);
    std::uint64_t seed = 0;
    // Parts in the lines, staged, direct and in chunks.
    for (const CollectiveKind kind : kDataKinds)
      for (const std::size_t count : {1, 100, 700, is_sanitized() ? 3000 : 9000}) {
        ++seed;
        const ExchangeCase c{.kind = kind,
                             .count = count,
                             .input_place = kPlaces[seed % std::size(kPlaces)],
                             .output_place = kPlaces[seed / 2 % std::size(kPlaces)],
                             .in_place = seed % 3 == 0,
                             .root = static_cast<int>(seed * 7) % communicator.size(),
                             .seed = seed};
        check_exchange_of_its_kind(communicator, c);
        communicator.barrier();
      }
  });
}

TEST_P(Crowd, MixesGroupsAndMessages) {
  run_ranks(GetParam(),
            [](const JobGroup& group) {
              GroupMix mix(group, 64);
              mix.run(is_sanitized() ? 50 : 300);
            },
            {.memory_bytes = std::size_t{4} << 30});
}

}  // namespace
}  // namespace retinue::test
