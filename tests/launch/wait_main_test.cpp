// What ProcessContext::wait() gives back, and what the context refuses.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"
#include "support/start_methods.h"
#include "support/usage_error.h"

using retinue::ProcessContext;
using retinue::RankContext;
using retinue::RankEnd;
using retinue::RunResult;
using retinue::Runtime;
using retinue::test::EachStartMethod;
using retinue::test::usage_error_of;

namespace {

constexpr auto kLong = std::chrono::minutes(1);

std::vector<std::string> names_of(RankContext& context, const std::string& name) {
  return std::vector<std::string>(static_cast<std::size_t>(context.rank()), name);
}

TEST_P(EachStartMethod, GivesWhatTheRanksReturned) {
  ProcessContext ranks = retinue::spawn<names_of>({.nprocs = 3, .start_method = GetParam(), .join = false}, "a name");
  const RunResult result = ranks.wait();
  EXPECT_TRUE(result.ok());
  const auto values = result.values<std::vector<std::string>>();
  ASSERT_EQ(values.size(), 3u);
  for (const auto& [rank, value] : values) EXPECT_EQ(value, std::vector<std::string>(std::size_t(rank), "a name"));
  // Again the same, whatever is asked.
  ranks.join();
  EXPECT_EQ(ranks.wait(std::chrono::seconds(0))->value<std::vector<std::string>>(2).size(), 2u);
}

// The context's record is another start's as soon as one thread has seen it end.
TEST(ProcessContexts, MayBeWaitedForAndAskedBySeveralThreads) {
  constexpr int kStarters = 3;
  constexpr int kRounds = 20;
  std::atomic<int> seen = 0;
  const auto start_and_wait = [&] {
    for (int round = 0; round < kRounds; ++round) {
      ProcessContext ranks = retinue::spawn<names_of>({.nprocs = 2, .join = false}, "a name");
      std::thread asks([&] {
        while (!ranks.wait(std::chrono::seconds(0))) static_cast<void>(ranks.status());
        ranks.terminate();
      });
      std::thread joins([&] { ranks.join(); });
      if (ranks.wait(kLong) && ranks.wait().ok()) ++seen;
      asks.join();
      joins.join();
    }
  };
  std::vector<std::thread> starters;
  for (int i = 0; i < kStarters; ++i) starters.emplace_back(start_and_wait);
  for (std::thread& starter : starters) starter.join();
  EXPECT_EQ(seen, kStarters * kRounds);
}

double square_or_fail(int rank, double number) {
  if (rank == 1) throw std::runtime_error("rank 1 cannot");
  if (rank == 2) {
    for (;;) pause();  // Until it is stopped.
  }
  return number * number;
}

TEST_P(EachStartMethod, GivesFailuresWithoutThrowing) {
  ProcessContext ranks = retinue::spawn<square_or_fail>({.nprocs = 3, .start_method = GetParam(), .join = false}, 1.5);
  const auto result = ranks.wait(kLong);
  ASSERT_TRUE(result.has_value());
  EXPECT_FALSE(result->ok());
  ASSERT_EQ(result->failures().size(), 1u);
  EXPECT_EQ(result->failures()[0].rank, 1);
  EXPECT_EQ(result->failures()[0].message, "rank 1 cannot");
  ASSERT_EQ(result->outcomes().size(), 3u);
  EXPECT_EQ(result->outcomes()[2].end, RankEnd::kStopped);
  EXPECT_FALSE(result->values<double>().contains(1));
  const std::string error = usage_error_of([&] { static_cast<void>(result->value<double>(1)); });
  EXPECT_NE(error.find("rank 1 returned no value: it raised std::runtime_error"), std::string::npos) << error;
  EXPECT_THROW(ranks.join(), retinue::ProcessRaisedException);
  EXPECT_EQ(ranks.wait().failures().size(), 1u);
}

std::string large_value(RankContext&, std::size_t bytes) {
  return std::string(bytes, 'x');
}

TEST_P(EachStartMethod, FreesValuesWithTheContext) {
  const auto& memory = Runtime::current().memory();
  constexpr std::size_t kBytes = 3 << 20;
  {
    ProcessContext ranks =
        retinue::spawn<large_value>({.nprocs = 2, .start_method = GetParam(), .join = false}, kBytes);
    EXPECT_EQ(ranks.wait().value<std::string>(1).size(), kBytes);
    EXPECT_LE(memory->allocated_bytes(), 2 * kBytes + 4096);
  }
  retinue::spawn<large_value>({.nprocs = 2, .start_method = GetParam()}, kBytes);
  EXPECT_EQ(memory->allocated_bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(StartMethods, EachStartMethod, retinue::test::all_start_methods(),
                         retinue::test::start_method_name);

int one(RankContext&) {
  return 1;
}
void nothing(RankContext&) {}

TEST(RunResult, NamesBothTypesWhenTheyDiffer) {
  ProcessContext ranks = retinue::spawn<one>({.join = false});
  const RunResult result = ranks.wait();
  const std::string error = usage_error_of([&] { static_cast<void>(result.values<double>()); });
  EXPECT_NE(error.find("type double, but the function returned int"), std::string::npos) << error;
  EXPECT_NE(usage_error_of([&] { static_cast<void>(result.value<int>(1)); }).find("no rank 1"), std::string::npos);
}

TEST(RunResult, SaysWhenNothingWasReturned) {
  ProcessContext ranks = retinue::spawn<nothing>({.nprocs = 2, .join = false});
  const RunResult result = ranks.wait();
  const std::string error = usage_error_of([&] { static_cast<void>(result.values<int>()); });
  EXPECT_NE(error.find("the function returns void"), std::string::npos) << error;
}

TEST(Closure, GivesBackWhatItReturns) {
  const std::vector<std::string> names = {"first", "second", "third"};
  ProcessContext ranks = retinue::spawn({.nprocs = 3, .join = false}, [&names](RankContext& context) {
    return names[static_cast<std::size_t>(context.rank())] + "!";
  });
  const std::map<int, std::string> expected = {{0, "first!"}, {1, "second!"}, {2, "third!"}};
  EXPECT_EQ(ranks.wait().values<std::string>(), expected);
}

TEST(Closure, MayBeMutableAndGeneric) {
  int calls = 0;
  auto count = [calls](auto& context) mutable { return ++calls + context.rank(); };
  ProcessContext ranks = retinue::spawn({.nprocs = 2, .join = false}, count);
  const std::map<int, int> expected = {{0, 1}, {1, 2}};
  EXPECT_EQ(ranks.wait().values<int>(), expected);
}

TEST(Closure, TakesItsRankAsANumber) {
  const int factor = 10;
  auto ranks = retinue::spawn({.nprocs = 3, .join = false}, [&](int rank) { return rank * factor; });
  const RunResult result = ranks.wait();
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(result.value<int>(rank), rank * factor);
}

std::filesystem::path parent(RankContext&, const std::filesystem::path& path,
                             const std::vector<std::filesystem::path>& others) {
  return others.at(0) / path.parent_path();
}

TEST(Wait, GivesBackPaths) {
  const std::filesystem::path path = "a folder/file";
  auto ranks = retinue::spawn<parent>({.join = false}, path, std::vector<std::filesystem::path>{"/tmp"});
  EXPECT_EQ(ranks.wait().value<std::filesystem::path>(0), std::filesystem::path("/tmp/a folder"));
}

TEST(Closure, GivesTheValuesOfRanksThatDidNotFail) {
  ProcessContext ranks = retinue::spawn({.nprocs = 2, .join = false}, [](RankContext& context) -> std::size_t {
    if (context.rank() == 1) throw std::runtime_error("rank 1 cannot");
    for (;;) pause();  // Until it is stopped.
  });
  const RunResult result = ranks.wait();
  ASSERT_EQ(result.failures().size(), 1u);
  EXPECT_EQ(result.failures()[0].message, "rank 1 cannot");
  EXPECT_TRUE(result.values<std::size_t>().empty());
}

TEST(Closure, SaysWhenItReturnedNothing) {
  ProcessContext ranks = retinue::spawn({.join = false}, [](RankContext&) {});
  const RunResult result = ranks.wait();
  const std::string error = usage_error_of([&] { static_cast<void>(result.value<int>(0)); });
  EXPECT_NE(error.find("rank 0 returned no value"), std::string::npos) << error;
}

void wait_for_usr1(RankContext&) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  int signal = 0;
  sigwait(&set, &signal);
}

TEST(ProcessContext, SignalsOneRankOnly) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigset_t before;
  sigprocmask(SIG_BLOCK, &set, &before);  // In the ranks, too: forks of this process.
  ProcessContext ranks = retinue::spawn({.nprocs = 2, .join = false}, &wait_for_usr1);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  ranks.signal(SIGUSR1, 1);
  while (ranks.status()[1].end == RankEnd::kRunning) usleep(1000);
  EXPECT_EQ(ranks.status()[0].end, RankEnd::kRunning);
  EXPECT_THROW(ranks.signal(SIGUSR1, 2), retinue::UsageError);
  EXPECT_THROW(ranks.signal(SIGUSR1, -1), retinue::UsageError);
  EXPECT_THROW(ranks.signal(0, 1), retinue::UsageError);
  ranks.signal(SIGUSR1);
  ranks.join();
}

void wait_for_ever(RankContext&) {
  for (;;) pause();
}

TEST(ProcessContext, SaysWhichRankIsStopped) {
  ProcessContext ranks = retinue::spawn<wait_for_ever>({.nprocs = 2, .join = false});
  ranks.signal(SIGSTOP, 1);
  EXPECT_FALSE(ranks.join(std::chrono::milliseconds(1)));
  auto status = ranks.status();
  for (; status[1].message.find("stopped") == std::string::npos; status = ranks.status()) usleep(1000);
  EXPECT_EQ(status[1].end, RankEnd::kRunning);
  EXPECT_EQ(status[1].message,
            "is stopped (SIGSTOP or the like): kill -CONT " + std::to_string(status[1].pid) + " continues it");
  EXPECT_EQ(status[0].message.find("stopped"), std::string::npos) << status[0].message;
  ranks.kill();
  ranks.join();
}

TEST(ProcessContext, RefusesToWorkAfterAMove) {
  ProcessContext first = retinue::spawn<nothing>({.join = false});
  ProcessContext second = std::move(first);
  const std::string error = usage_error_of([&] { first.join(); });  // NOLINT(bugprone-use-after-move)
  EXPECT_NE(error.find("ProcessContext::join: this context was moved from"), std::string::npos) << error;
  EXPECT_THROW(first.pids(), retinue::UsageError);
  EXPECT_THROW(first.status(), retinue::UsageError);
  EXPECT_THROW(first.terminate(), retinue::UsageError);
  EXPECT_THROW(first.wait(kLong), retinue::UsageError);
  EXPECT_THROW(first.signal(SIGTERM, 0), retinue::UsageError);
  second.join();
}

std::size_t size_of(RankContext&, const std::string& text) {
  return text.size();
}

TEST(Arguments, AreStoredOnceForAllRanks) {
  const auto& memory = Runtime::current().memory();
  constexpr std::size_t kBytes = 8 << 20;
  ProcessContext ranks = retinue::spawn<size_of>({.nprocs = 8, .join = false}, std::string(kBytes, 'x'));
  EXPECT_LT(memory->allocated_bytes(), 2 * kBytes);
  for (const auto& [rank, size] : ranks.wait().values<std::size_t>()) EXPECT_EQ(size, kBytes) << rank;
}

}  // namespace
