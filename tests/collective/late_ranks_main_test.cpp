// In a job with a guardian, whose helper completes what ranks say of late ones.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "collective/late_scene.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"
#include "support/says.h"

namespace retinue::test {
namespace {

/// Of this program and all that comes of it; made before the guardian.
LateScene* scene = nullptr;

void play(RankContext& context, int lateness) {
  play_late(*scene, context.world(), static_cast<Lateness>(lateness),
            [](const std::string& text) { return text.find("This report repeats") != std::string::npos; });
  if (testing::Test::HasFailure()) throw std::logic_error("a rank saw a failure");
}

class LateRanks : public testing::TestWithParam<Lateness> {};
INSTANTIATE_TEST_SUITE_P(That, LateRanks,
                         testing::Values(Lateness::kStopped, Lateness::kSleeping, Lateness::kReading,
                                         Lateness::kLooping));

TEST_P(LateRanks, AreReportedOnceWithTheirStacks) {
  scene->captured.clear();
  scene->shared->goes_on = false;
  spawn<play>({.nprocs = kLateRanks}, static_cast<int>(GetParam()));
  const std::string text = scene->captured.text();
  EXPECT_EQ(count_of(text, "retinue: group"), 1) << text;
  EXPECT_EQ(count_of(text, "\x01"), 0) << text;
  EXPECT_NE(text.find("rank 2 is late\n"), std::string::npos) << text;
  EXPECT_NE(text.find(words_for(GetParam(), scene->shared->late_pid)), std::string::npos) << text;
  if (text.find("is forbidden") == std::string::npos) {
    EXPECT_NE(text.find("be_late("), std::string::npos) << text;
    EXPECT_NE(text.find("late_scene.h:"), std::string::npos) << text;
  }
}

std::string run_into_the_timeout(RankContext& context) {
  if (context.rank() == kController) {
    if (!wait_until([] { return scene->shared->timed_out == kLateRanks - 2; })) throw std::logic_error("no timeout");
    let_go_on(*scene, Lateness::kSleeping);
    return "";
  }
  JobGroup group = context.world();
  group.process_slots.pop_back();
  Communicator communicator(group, {.timeout = std::chrono::seconds(6), .late_after = kLateAfter});
  communicator.barrier();
  if (context.rank() == kLateRank) be_late(*scene, Lateness::kSleeping);
  try {
    communicator.barrier();
  } catch (const TimeoutError& error) {
    ++scene->shared->timed_out;
    return error.what();
  }
  throw std::logic_error("the barrier ended");
}

TEST(LateRank, HasItsStackInTheErrorOfTheTimeout) {
  scene->captured.clear();
  auto ranks = spawn<run_into_the_timeout>({.nprocs = kLateRanks, .join = false});
  const RunResult result = ranks.wait();
  ASSERT_TRUE(result.ok());
  for (int rank = 0; rank < kController; ++rank) {
    const auto text = result.value<std::string>(rank);
    EXPECT_NE(text.find("missing: rank 2 (pid "), std::string::npos) << text;
    EXPECT_NE(text.find("seen after 1 barrier, the last at "), std::string::npos) << text;
    EXPECT_NE(text.find(", which sleeps (nanosleep)"), std::string::npos) << text;
    EXPECT_NE(text.find("its stack "), std::string::npos) << text;
    if (scene->captured.text().find("is forbidden") == std::string::npos) {
      EXPECT_NE(text.find("be_late("), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace retinue::test

int main(int argc, char** argv) {
  retinue::test::LateScene own;
  retinue::test::scene = &own;
  own.captured.begin();
  retinue::Runtime runtime(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
