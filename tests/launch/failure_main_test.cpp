#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "base/char_field.h"
#include "ipc/memory/job_layout.h"
#include "retinue/base/detail/foreign_error.h"
#include "retinue/launch/join_world.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"
#include "support/paths.h"
#include "support/start_methods.h"

using retinue::ProcessExitedException;
using retinue::ProcessRaisedException;
using retinue::RankContext;
using retinue::RankEnd;
using retinue::test::EachStartMethod;

namespace {

/// What the ranks that don't fail do: wait to be stopped.
void wait_for_the_end() {
  for (;;) pause();
}

constexpr const char* kTraceback =
    "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nValueError: bad\n";

void fail(RankContext& context, const std::string& how) {
  if (context.rank() != 1) wait_for_the_end();
  if (how == "throw") throw std::out_of_range("index 7 of 3");
  if (how == "exit") std::exit(3);
  if (how == "_exit") _exit(4);
  if (how == "kill") raise(SIGKILL);
  if (how == "segv") raise(SIGSEGV);
  if (how == "abort") std::abort();
  if (how == "terminate") std::terminate();
  if (how == "throw an int") throw 42;
  if (how == "raise deep in")
    throw retinue::detail::ForeignError("RecursionError", "deep", "Traceback\n" + std::string(40000, 'x') + "\nlast\n");
  if (how == "raise") throw retinue::detail::ForeignError("ValueError", "bad", kTraceback);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Runs it and returns what spawn threw, as the type that it must have.
template <class Exception>
Exception failure_of(retinue::StartMethod method, const std::string& how) {
  try {
    retinue::spawn<fail>({.nprocs = 3, .start_method = method}, how);
  } catch (const Exception& error) {
    return error;
  }
  throw std::logic_error("spawn returned although a rank failed");
}

template <class Exception>
void expect_rank1_failed_and_others_stopped(const Exception& error) {
  EXPECT_EQ(error.rank(), 1);
  EXPECT_GT(error.pid(), 0);
  ASSERT_EQ(error.outcomes().size(), 3u);
  EXPECT_EQ(error.outcomes()[0].end, RankEnd::kStopped) << error.what();
  EXPECT_EQ(error.outcomes()[2].end, RankEnd::kStopped) << error.what();
}

TEST_P(EachStartMethod, ThrowIsReportedWithTypeMessageAndStack) {
  const auto error = failure_of<ProcessRaisedException>(GetParam(), "throw");
  expect_rank1_failed_and_others_stopped(error);
  EXPECT_EQ(error.outcome().type, "std::out_of_range");
  EXPECT_EQ(error.outcome().message, "index 7 of 3");
  EXPECT_TRUE(contains(error.outcome().stack, "fail")) << error.what();
  EXPECT_TRUE(contains(error.outcome().stack, "failure_main_test.cpp:")) << error.what();
  EXPECT_TRUE(contains(error.what(), "rank 1 (pid ")) << error.what();
}

TEST_P(EachStartMethod, AThrownIntIsReported) {
  EXPECT_EQ(failure_of<ProcessRaisedException>(GetParam(), "throw an int").outcome().type, "int");
}

TEST_P(EachStartMethod, AnotherLanguagesExceptionHasItsTypeAndStack) {
  const auto error = failure_of<ProcessRaisedException>(GetParam(), "raise");
  EXPECT_EQ(error.outcome().type, "ValueError");
  EXPECT_EQ(error.outcome().message, "bad");
  EXPECT_EQ(error.outcome().stack, kTraceback);
  // Python's last frame is the place of the error.
  EXPECT_EQ(failure_of<ProcessRaisedException>(GetParam(), "raise deep in").outcome().stack, "last\n");
}

TEST_P(EachStartMethod, ExitCodesAreReported) {
  const auto exited = failure_of<ProcessExitedException>(GetParam(), "exit");
  expect_rank1_failed_and_others_stopped(exited);
  EXPECT_EQ(exited.exit_code(), 3);
  EXPECT_EQ(failure_of<ProcessExitedException>(GetParam(), "_exit").exit_code(), 4);
}

TEST_P(EachStartMethod, SignalsAreReported) {
  const auto killed = failure_of<ProcessExitedException>(GetParam(), "kill");
  expect_rank1_failed_and_others_stopped(killed);
  EXPECT_EQ(killed.signal(), SIGKILL);
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return;  // Sanitizers make of a SIGSEGV what they like.
#endif
  const auto faulted = failure_of<ProcessExitedException>(GetParam(), "segv");
  EXPECT_EQ(faulted.signal_name(), "SIGSEGV");
  EXPECT_TRUE(contains(faulted.outcome().stack, "fail")) << faulted.what();
}

TEST_P(EachStartMethod, AbortAndTerminateAreReported) {
  const auto aborted = failure_of<ProcessExitedException>(GetParam(), "abort");
  EXPECT_EQ(aborted.signal(), SIGABRT);
  EXPECT_TRUE(contains(aborted.outcome().stack, "fail")) << aborted.what();
  const auto terminated = failure_of<ProcessExitedException>(GetParam(), "terminate");
  EXPECT_EQ(terminated.signal(), SIGABRT);
  EXPECT_TRUE(contains(terminated.what(), "std::terminate")) << terminated.what();
}

void ignore_sigterm(RankContext& context) {
  if (context.rank() == 0) throw std::runtime_error("first");
  signal(SIGTERM, SIG_IGN);
  wait_for_the_end();
}

TEST_P(EachStartMethod, ARankThatIgnoresSigtermIsKilled) {
  const retinue::StopPolicy quick = {.terminate_wait = std::chrono::milliseconds(20)};
  EXPECT_THROW(retinue::spawn<ignore_sigterm>({.nprocs = 2, .start_method = GetParam(), .stop = quick}),
               ProcessRaisedException);
}

void leave_children(RankContext&) {
  if (fork() == 0) wait_for_the_end();  // In the rank's process group.
  if (fork() == 0) {                    // Out of it, and out of the session.
    setsid();
    if (fork() != 0) _exit(0);
    wait_for_the_end();
  }
}

TEST(Sweep, NothingThatARankLeftBehindSurvives) {
  retinue::spawn<leave_children>({.nprocs = 2});
  // The guardian is this process's only child, invisible to wait(); what it swept cannot have come here.
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

/// Two ranks of a world of four.
void join_larger_world(RankContext& context, int shard, const std::string& init_method) {
  const int rank = 2 * shard + context.rank();
  retinue::join_world({.init_method = init_method, .world_size = 4, .rank = rank});
  if (rank == 3) throw std::runtime_error("bad row");
}

TEST_P(EachStartMethod, ARankOfSeveralShardsIsNamedAsItsWorldDoes) {
  const std::string path =
      fmt::format("{}/retinue-shards-{}", std::filesystem::temp_directory_path().c_str(), getpid());
  const std::string init_method = "file://" + path;
  auto first =
      retinue::spawn<join_larger_world>({.nprocs = 2, .start_method = GetParam(), .join = false}, 0, init_method);
  auto second =
      retinue::spawn<join_larger_world>({.nprocs = 2, .start_method = GetParam(), .join = false}, 1, init_method);
  first.join();
  try {
    second.join();
    FAIL() << "rank 3 threw";
  } catch (const ProcessRaisedException& error) {
    EXPECT_EQ(error.rank(), 1);
    EXPECT_EQ(error.outcome().world_rank, 3);
    EXPECT_TRUE(contains(error.what(), "rank 1 (rank 3 of its world, pid ")) << error.what();
    EXPECT_TRUE(contains(retinue::to_json(error), "\"world_rank\": 3")) << retinue::to_json(error);
  }
}

TEST(Programs, WithARankOfTheirOwnAreNamedByItToo) {
  const std::map<int, retinue::Arguments> args = {{0, {"-c", "exit 0"}}, {1, {"-c", "exit 3"}}};
  const auto place = [](const char* rank) {
    return std::map<std::string, std::string>{{"RANK", rank}, {"WORLD_SIZE", "8"}};
  };
  try {
    retinue::start_processes({}, "sh", args, {{0, place("4")}, {1, place("5")}}).join();
    FAIL() << "rank 5 failed";
  } catch (const ProcessExitedException& error) {
    EXPECT_EQ(error.outcome().world_rank, 5);
    EXPECT_TRUE(contains(error.what(), "rank 1 (rank 5 of its world, pid ")) << error.what();
  }
}

/// Only of numbers that others put there.
TEST(Programs, WithARankOfTheirOwnAreNotWarnedOfIt) {
  const std::string script =
      "said=$(" RETINUE_BIN_DIR
      "/ranked_program sum x 2>&1) && case \"$said\" in *'differs from what the launcher set'*) exit 5;; esac";
  const auto place = [](const char* rank) {
    return std::map<std::string, std::string>{{"RANK", rank}, {"WORLD_SIZE", "8"}};
  };
  EXPECT_NO_THROW(
      retinue::start_processes({}, "sh", {{0, {"-c", script}}, {1, {"-c", script}}}, {{0, place("0")}, {1, place("1")}})
          .join());
}

TEST(Programs, OfAnotherVersionSayWhichTheyAre) {
  auto& made_by = retinue::Runtime::current().memory()->header().version;
  const std::string own = retinue::text_of(made_by);
  const std::string script = "said=$(" RETINUE_BIN_DIR "/ranked_program die 2>&1); case \"$said\" in " +
                             fmt::format("*'another version of Retinue (0.0.1, and this is {}'*) exit 3;; esac", own);
  retinue::fill(made_by, "0.0.1");
  try {
    retinue::start_processes({}, "sh", {{0, {"-c", script}}}, {{0, {}}}).join();
    ADD_FAILURE() << "another version's program ran";
  } catch (const ProcessExitedException& error) {
    EXPECT_EQ(error.exit_code(), 3) << error.what();
  }
  retinue::fill(made_by, own);
}

INSTANTIATE_TEST_SUITE_P(StartMethods, EachStartMethod, retinue::test::all_start_methods(),
                         retinue::test::start_method_name);

}  // namespace
