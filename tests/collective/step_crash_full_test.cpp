// The same as step_crash_test.cpp at every point, and of every rank.
#include "collective/step_crash.h"

namespace retinue::test {
namespace {

TEST_P(StepCrashOfScene, OfEachEndsTheOthers) {
  for (int victim = 0; victim < 3; ++victim) at_each_point_of(GetParam(), 3, victim, SIGKILL, kAll);
}

TEST_P(StepCrashOfScene, OfEachOfTwoEndsTheOther) {
  for (int victim = 0; victim < 2; ++victim) at_each_point_of(GetParam(), 2, victim, SIGKILL, kAll);
}

TEST_P(StepCrashOfScene, DoesNotFollowFromAStop) {
  for (const int ranks : {2, 3}) at_each_point_of(GetParam(), ranks, ranks - 2, SIGSTOP, kAll);
}

TEST_F(StepCrash, OfALeaderWhoRelaysEndsTheOthers) {
  at_each_point_of_a_relay(SIGKILL, kAll);
}

TEST_F(StepCrash, DoesNotFollowFromTheStopOfALeaderWhoRelays) {
  at_each_point_of_a_relay(SIGSTOP, kAll);
}

}  // namespace
}  // namespace retinue::test
