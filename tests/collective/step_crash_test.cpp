#include "collective/step_crash.h"

namespace retinue::test {
namespace {

constexpr long kKills = is_sanitized() ? 2 : 16;
constexpr long kStops = is_sanitized() ? 1 : 4;

TEST_P(StepCrashOfScene, OfOneEndsTheOthers) {
  at_each_point_of(GetParam(), 3, 1, SIGKILL, kKills);
}

TEST_P(StepCrashOfScene, OfOneOfTwoEndsTheOther) {
  at_each_point_of(GetParam(), 2, 0, SIGKILL, kKills);
}

TEST_P(StepCrashOfScene, DoesNotFollowFromAStop) {
  at_each_point_of(GetParam(), 3, 1, SIGSTOP, kStops);
  at_each_point_of(GetParam(), 2, 0, SIGSTOP, kStops);
}

TEST_F(StepCrash, OfALeaderWhoRelaysEndsTheOthers) {
  at_each_point_of_a_relay(SIGKILL, is_sanitized() ? 3 : 40);
}

TEST_F(StepCrash, DoesNotFollowFromTheStopOfALeaderWhoRelays) {
  at_each_point_of_a_relay(SIGSTOP, is_sanitized() ? 3 : 12);
}

}  // namespace
}  // namespace retinue::test
