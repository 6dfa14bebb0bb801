// What was started runs although nobody keeps what spawn returned.
#include <gtest/gtest.h>
#include <chrono>
#include <stdexcept>

#include "retinue/ipc/queue.h"
#include "retinue/launch/process.h"
#include "retinue/launch/spawn.h"
#include "support/start_methods.h"

using namespace std::chrono_literals;
using retinue::test::EachStartMethod;

namespace {

constexpr auto kPatience = 30s;  // A wait that takes longer fails the test.
constexpr int kRounds = 15;

void nothing(int) {}

void put_rank(int rank, retinue::Queue<int> runs) {
  runs.put(rank);
}
void put_zero(retinue::Queue<int> runs) {
  runs.put(0);
}

/// The job's record of the start before is free in the moment in which the guardian has told of its end.
TEST_P(EachStartMethod, RunsAfterOneThatWasJoined) {
  retinue::Queue<int> runs({.capacity = 4});
  for (int round = 0; round < kRounds; ++round) {
    retinue::spawn<nothing>({.nprocs = 2});
    retinue::spawn<put_rank>({.nprocs = 2, .start_method = GetParam(), .join = false}, runs);
    for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(runs.get(kPatience)) << "in round " << round;
  }
}

TEST_P(EachStartMethod, AProcessRunsAfterOneThatWasJoined) {
  retinue::Queue<int> runs({.capacity = 4});
  for (int round = 0; round < kRounds; ++round) {
    retinue::spawn<nothing>({.nprocs = 1});
    retinue::Process<put_zero>({.start_method = GetParam()}, runs).start();
    ASSERT_TRUE(runs.get(kPatience)) << "in round " << round;
  }
}

INSTANTIATE_TEST_SUITE_P(DroppedContext, EachStartMethod, retinue::test::all_start_methods(),
                         retinue::test::start_method_name);

}  // namespace
