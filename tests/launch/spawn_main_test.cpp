#include "retinue/launch/spawn.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "launch/same_name.h"
#include "retinue/launch/runtime.h"
#include "support/start_methods.h"
#include "support/usage_error.h"

using retinue::ProcessContext;
using retinue::RankContext;
using retinue::Runtime;
using retinue::StartMethod;
using retinue::test::EachStartMethod;
using retinue::test::usage_error_of;

namespace {

/// Words in job memory that ranks write and the test reads.
class Words {
 public:
  Words() : memory_(Runtime::current().memory()), block_(memory_->allocate(4096)) {
    std::fill_n(data(), 4096 / sizeof(std::int64_t), 0);
  }
  ~Words() { memory_->release(block_); }
  std::int64_t* data() const { return memory_->at<std::int64_t>(block_.offset); }
  std::uint64_t offset() const { return block_.offset; }

 private:
  std::shared_ptr<retinue::JobMemory> memory_;
  retinue::BlockHandle block_;
};

std::int64_t& word(std::uint64_t offset, int index) {
  return Runtime::current().memory()->at<std::int64_t>(offset)[index];
}

void note_arguments(RankContext& context, std::uint64_t offset, const std::string& text,
                    std::map<std::string, std::vector<int>> numbers, std::optional<double> maybe) {
  const bool right = text == "a text" && numbers.at("primes") == std::vector<int>({2, 3, 5}) && maybe == 0.25;
  word(offset, context.rank()) = right ? 100 * context.world_size() + context.local_rank() : -1;
}

void note_rank(int rank, std::uint64_t offset) {
  word(offset, rank) = rank + 1;
}

TEST_P(EachStartMethod, PassesArgumentsAndContext) {
  const Words words;
  retinue::spawn<note_arguments>({.nprocs = 3, .start_method = GetParam()}, words.offset(), "a text",
                                 std::map<std::string, std::vector<int>>{{"primes", {2, 3, 5}}}, 0.25);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(words.data()[rank], 300 + rank);
}

struct Circle {
  double x;
  double y;
  float radius;
};

Circle grown(int rank, Circle circle) {
  circle.radius += static_cast<float>(rank);
  return circle;
}

TEST_P(EachStartMethod, PassesPlainStructsBothWays) {
  const auto result =
      retinue::spawn<grown>({.nprocs = 2, .start_method = GetParam(), .join = false}, Circle{0.5, -0.5, 3}).wait();
  EXPECT_EQ(result.value<Circle>(1).x, 0.5);
  EXPECT_EQ(result.value<Circle>(1).radius, 4);
}

TEST_P(EachStartMethod, TellsTwoLambdasOfOneFunctionApart) {
  const Words words;
  constexpr auto kFirst = [](RankContext& context, std::uint64_t offset) { word(offset, context.rank()) = 1; };
  constexpr auto kSecond = [](RankContext& context, std::uint64_t offset) { word(offset, context.rank()) = 2; };
  retinue::spawn<kSecond>({.start_method = GetParam()}, words.offset());
  EXPECT_EQ(words.data()[0], 2);
  retinue::spawn<kFirst>({.start_method = GetParam()}, words.offset());
  EXPECT_EQ(words.data()[0], 1);
}

TEST_P(EachStartMethod, TellsStaticFunctionsOfOneNameInTwoFilesApart) {
  const Words words;
  retinue::test::spawn_same_name_a(GetParam(), words.offset());
  EXPECT_EQ(words.data()[0], 'a');
  retinue::test::spawn_same_name_b(GetParam(), words.offset());
  EXPECT_EQ(words.data()[0], 'b');
}

void note_surroundings(RankContext&, std::uint64_t offset) {
  const char* value = std::getenv("RETINUE_TEST_SURROUNDINGS");
  word(offset, 0) = value != nullptr && std::string(value) == "set after Runtime" ? 1 : 0;
  word(offset, 1) = std::filesystem::current_path() == "/" ? 1 : 0;
  word(offset, 2) = umask(0);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  word(offset, 3) = static_cast<std::int64_t>(limit.rlim_cur);
  word(offset, 4) = std::string(std::getenv("RANK")) == "0" && std::string(std::getenv("WORLD_SIZE")) == "1";
}

TEST_P(EachStartMethod, InheritsTheCallersSurroundingsOfNow) {
  const Words words;
  const auto directory = std::filesystem::current_path();
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  setenv("RETINUE_TEST_SURROUNDINGS", "set after Runtime", 1);
  std::filesystem::current_path("/");
  const mode_t mask = umask(027);
  const rlimit lower{200, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &lower);
  retinue::spawn<note_surroundings>({.start_method = GetParam()}, words.offset());
  setrlimit(RLIMIT_NOFILE, &before);
  umask(mask);
  std::filesystem::current_path(directory);
  unsetenv("RETINUE_TEST_SURROUNDINGS");
  EXPECT_EQ(words.data()[0], 1);
  EXPECT_EQ(words.data()[1], 1);
  EXPECT_EQ(words.data()[2], 027);
  EXPECT_EQ(words.data()[3], 200);
  EXPECT_EQ(words.data()[4], 1);
}

void spawn_two_more(RankContext& context, std::uint64_t offset) {
  word(offset, 0) = 7;
  retinue::spawn<note_rank>({.nprocs = 2}, offset);
  word(offset, 2) = context.world_size();
}

TEST_P(EachStartMethod, SpawnsFromWithinARank) {
  const Words words;
  retinue::spawn<spawn_two_more>({.start_method = GetParam()}, words.offset());
  EXPECT_EQ(words.data()[0], 1);
  EXPECT_EQ(words.data()[1], 2);
  EXPECT_EQ(words.data()[2], 1);
}

TEST_P(EachStartMethod, RefusesNegativeTimesByName) {
  const auto text_of = [](retinue::SpawnOptions options) {
    options.start_method = GetParam();
    return usage_error_of([&] { retinue::spawn<note_rank>(options, 0u); });
  };
  constexpr std::chrono::milliseconds kNegative(-1);
  EXPECT_EQ(text_of({.stop = {.terminate_wait = kNegative}}), "stop.terminate_wait is -1 ms: it must be 0 or longer");
  EXPECT_EQ(text_of({.stop = {.kill_wait = kNegative}}), "stop.kill_wait is -1 ms: it must be 0 or longer");
  EXPECT_EQ(text_of({.exit_grace = kNegative}), "exit_grace is -1 ms: it must be 0 or longer");
}

INSTANTIATE_TEST_SUITE_P(StartMethods, EachStartMethod, retinue::test::all_start_methods(),
                         retinue::test::start_method_name);

void wait_for_word(RankContext&, std::uint64_t offset) {
  while (std::atomic_ref(word(offset, 0)).load() == 0) std::this_thread::yield();
}

TEST(Spawn, JoinWithTimeoutSaysWhetherRanksStillRun) {
  const Words words;
  ProcessContext ranks = retinue::spawn<wait_for_word>({.nprocs = 2, .join = false}, words.offset());
  EXPECT_FALSE(ranks.join(std::chrono::milliseconds(1)));
  EXPECT_EQ(ranks.pids().size(), 2u);
  std::atomic_ref(words.data()[0]).store(1);
  EXPECT_TRUE(ranks.join(std::chrono::minutes(1)));
  EXPECT_TRUE(ranks.join(std::chrono::seconds(0)));
  for (const retinue::RankOutcome& outcome : ranks.status()) EXPECT_EQ(outcome.end, retinue::RankEnd::kReturned);
}

TEST(Spawn, ContextsRunSideBySide) {
  const Words words;
  ProcessContext first = retinue::spawn<wait_for_word>({.nprocs = 2, .join = false}, words.offset());
  const Words others;
  retinue::spawn<note_rank>({.nprocs = 2}, others.offset());
  EXPECT_EQ(others.data()[1], 2);
  std::atomic_ref(words.data()[0]).store(1);
  first.join();
}

TEST(Spawn, TerminateEndsRanksAndIsNoFailure) {
  const Words words;
  ProcessContext ranks = retinue::spawn<wait_for_word>({.nprocs = 2, .join = false}, words.offset());
  ranks.terminate();
  EXPECT_NO_THROW(ranks.join());
  for (const retinue::RankOutcome& outcome : ranks.status()) EXPECT_EQ(outcome.end, retinue::RankEnd::kStopped);
}

TEST(Spawn, ClosuresSeeTheCallersState) {
  const Words words;
  const int local = 41;
  retinue::spawn({.nprocs = 2}, [&](RankContext& context) { word(words.offset(), context.rank()) = local + 1; });
  EXPECT_EQ(words.data()[0], 42);
  EXPECT_EQ(words.data()[1], 42);
}

TEST(Spawn, RefusesToForkBesideOtherThreads) {
  std::atomic<bool> done = false;
  std::thread other([&] { done.wait(false); });
  try {
    retinue::spawn({.nprocs = 1}, [](RankContext&) {});
    ADD_FAILURE() << "a fork beside another thread was allowed";
  } catch (const retinue::UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("other threads, whose locks"), std::string::npos) << error.what();
  }
  done = true;
  done.notify_all();
  other.join();
}

TEST(Spawn, RefusesWrongCounts) {
  EXPECT_THROW(retinue::spawn<note_rank>({.nprocs = 0}, 0u), retinue::UsageError);
  EXPECT_THROW(retinue::spawn<note_rank>({.nprocs = 5000}, 0u), retinue::UsageError);
}

void add_own(RankContext& context, std::uint64_t offset, int amount) {
  word(offset, context.rank()) = amount;
}

TEST(StartProcesses, GivesEachLocalRankItsArguments) {
  const Words words;
  ProcessContext ranks =
      retinue::start_processes<add_own>({.name = "adder"}, {{0, {words.offset(), 10}}, {1, {words.offset(), 20}}});
  ranks.join();
  EXPECT_EQ(words.data()[0], 10);
  EXPECT_EQ(words.data()[1], 20);
}

TEST(StartProcesses, RunsPrograms) {
  const auto folder = std::filesystem::temp_directory_path() / ("retinue-programs-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const std::string script =
      "test $RANK = $LOCAL_RANK && test $WORLD_SIZE = 2 && test $MINE = yes && touch " + folder.string() + "/$RANK";
  const retinue::Program program{"sh", {"-c", script}, {{"MINE", "yes"}}};
  retinue::start_processes({}, {program, program}).join();
  EXPECT_TRUE(std::filesystem::exists(folder / "0"));
  EXPECT_TRUE(std::filesystem::exists(folder / "1"));
  std::filesystem::remove_all(folder);
}

TEST(StartProcesses, SaysWhichProgramCannotBeExecuted) {
  try {
    retinue::start_processes({}, {retinue::Program{.file = "/no/such/program"}}).join();
    ADD_FAILURE() << "a program that does not exist was started";
  } catch (const retinue::ProcessRaisedException& error) {
    EXPECT_NE(std::string(error.what()).find("executing '/no/such/program': ENOENT"), std::string::npos)
        << error.what();
  }
}

TEST(Runtime, IsOneInAProcess) {
  char name[] = "second";
  char* arguments[] = {name, nullptr};
  EXPECT_THROW(Runtime(1, arguments), retinue::UsageError);
  EXPECT_NO_THROW(Runtime::current());
}

TEST(Runtime, ProgramIsAWorldOfOne) {
  const RankContext context = Runtime::current().rank_context();
  EXPECT_EQ(context.rank(), 0);
  EXPECT_EQ(context.world_size(), 1);
  EXPECT_FALSE(Runtime::current().is_rank());
}

}  // namespace
