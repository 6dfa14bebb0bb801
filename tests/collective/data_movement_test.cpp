#include <gtest/gtest.h>

#include "collective/reduction_check.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

constexpr std::size_t kSizes[] = {0, 1, 3, 32, 33, 1000, 8192, 65536, 70001, 131072, is_sanitized() ? 131073 : 1000003};

class DataMovement : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DataMovement, testing::Values(1, 2, 3, 5, 9));

TEST_P(DataMovement, BroadcastBringsTheRootsBytes) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    Communicator communicator(group);
    std::uint64_t seed = 0;
    for (const std::size_t bytes : kSizes)
      for (const Place place : kPlaces) {
        if (is_sanitized() && bytes > 10000 && place != kPlaces[bytes % std::size(kPlaces)]) continue;
        const int root = static_cast<int>(++seed) % communicator.size();
        const PlacedBuffer buffer(group, bytes, place);
        write_elements<std::uint8_t>(buffer.data(), elements<std::uint8_t>(seed, group.rank, 0, bytes));
        communicator.broadcast(buffer.data(), bytes, root);
        EXPECT_EQ(wrong_bytes({buffer.data(), bytes}, seed, root), 0u)
            << bytes << " bytes, root " << root << ", place " << static_cast<int>(place);
        // The buffer may be changed as soon as the call returned.
        std::fill_n(buffer.data(), bytes, std::byte{0xee});
        communicator.barrier();
      }
  });
}

TEST_P(DataMovement, AllGatherBringsAllRanksBytes) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    Communicator communicator(group);
    const auto size = static_cast<std::size_t>(communicator.size());
    std::uint64_t seed = 0;
    for (const std::size_t bytes : kSizes)
      for (const Place place : kPlaces)
        for (const bool in_place : {false, true}) {
          if (is_sanitized() && bytes > 10000 && place != kPlaces[bytes % std::size(kPlaces)]) continue;
          if (bytes > 100000 && in_place != (seed % 2 == 0)) continue;
          ++seed;
          const PlacedBuffer input(group, bytes, place);
          const PlacedBuffer output(group, bytes * size, place);
          std::byte* own = in_place ? output.data() + static_cast<std::size_t>(group.rank) * bytes : input.data();
          write_elements<std::uint8_t>(own, elements<std::uint8_t>(seed, group.rank, 0, bytes));
          communicator.all_gather(own, output.data(), bytes);
          if (!in_place) std::fill_n(own, bytes, std::byte{0xee});
          std::size_t wrong = 0;
          for (std::size_t rank = 0; rank < size; ++rank)
            wrong += wrong_bytes({output.data() + rank * bytes, bytes}, seed, static_cast<int>(rank));
          EXPECT_EQ(wrong, 0u) << bytes << " bytes, place " << static_cast<int>(place) << ", in place " << in_place;
        }
  });
}

}  // namespace
}  // namespace retinue::test
