#include "collective/parking.h"

namespace retinue::test {
namespace {

class ParkingSoak : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ParkingSoak, testing::Values(2, 3, 6));

TEST_P(ParkingSoak, LosesNoWakeUp) {
  check_that_no_wake_up_is_lost(GetParam(), {is_sanitized() ? 100000 : 2000000, std::chrono::minutes(20)});
}

}  // namespace
}  // namespace retinue::test
