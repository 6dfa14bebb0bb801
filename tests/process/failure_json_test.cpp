#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <vector>

#include "retinue/process/failure.h"

namespace retinue {
namespace {

TEST(FailureJson, HasAllThatIsKnownOfEachRank) {
  RankOutcome killed;
  killed.rank = 3;
  killed.local_rank = 1;
  killed.pid = 4711;
  killed.end = RankEnd::kSignaled;
  killed.signal = SIGKILL;
  killed.out_of_memory = true;
  killed.message = "out of memory (cgroup limit 64 MiB)";
  killed.ended = std::chrono::nanoseconds(5);
  killed.use = {.user_cpu = std::chrono::milliseconds(1500), .peak_memory_bytes = 1 << 20};
  RankOutcome returned;
  returned.rank = 2;
  returned.end = RankEnd::kReturned;
  killed.trace = "/traces/job/context_1";
  const auto json = nlohmann::json::parse(failure_json(std::vector{returned, killed}));
  EXPECT_EQ(json.at("root_cause"), 3);
  EXPECT_NE(json.at("message").get<std::string>().find("rank 3 (pid 4711)"), std::string::npos);
  ASSERT_EQ(json.at("ranks").size(), 2u);
  const auto& rank = json.at("ranks").at(1);
  EXPECT_EQ(rank.at("rank"), 3);
  EXPECT_EQ(rank.at("local_rank"), 1);
  EXPECT_EQ(rank.at("pid"), 4711);
  EXPECT_EQ(rank.at("end"), "signaled");
  EXPECT_EQ(rank.at("failed"), true);
  EXPECT_EQ(rank.at("signal"), SIGKILL);
  EXPECT_EQ(rank.at("signal_name"), "SIGKILL");
  EXPECT_EQ(rank.at("out_of_memory"), true);
  EXPECT_EQ(rank.at("ended_ns"), 5);
  EXPECT_EQ(rank.at("trace"), "/traces/job/context_1");
  EXPECT_EQ(rank.at("user_cpu_s"), 1.5);
  EXPECT_EQ(rank.at("peak_memory_bytes"), 1 << 20);
  EXPECT_EQ(json.at("ranks").at(0).at("failed"), false);
  EXPECT_EQ(json.at("ranks").at(0).at("signal_name"), "");
}

TEST(FailureJson, SurvivesTextInNoEncoding) {
  RankOutcome raised;
  raised.end = RankEnd::kRaised;
  raised.type = "std::runtime_error";
  raised.message = "caf\xe9 \"quoted\"\n\x01";
  const ProcessRaisedException failure("what", {raised}, 0);
  const auto json = nlohmann::json::parse(to_json(failure));
  EXPECT_EQ(json.at("ranks").at(0).at("message"), "caf\xef\xbf\xbd \"quoted\"\n\x01");
}

TEST(FailureJson, OfNothingIsRefused) {
  EXPECT_THROW(failure_json({}), UsageError);
}

}  // namespace
}  // namespace retinue
