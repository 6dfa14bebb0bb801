#include "collective/parking.h"

namespace retinue::test {
namespace {

class ParkingSoak : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ParkingSoak, testing::Values(2, 3, 6));

TEST_P(ParkingSoak, LosesNoWakeUp) {
  constexpr Posts kPosts{is_sanitized() ? 100000 : 2000000, std::chrono::minutes(20)};
  const Parks parks = check_that_no_wake_up_is_lost(GetParam(), kPosts);
  // Unless the time was not enough. Members wait as soon as they have come, and so each post finds about one parked.
  if (parks.posts > kPosts.most) {
    EXPECT_GT(parks.rings, kPosts.most / 2);
  }
}

}  // namespace
}  // namespace retinue::test
