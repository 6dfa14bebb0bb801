// Who may end before whom: parents before children, children that are no ranks, contexts that are let go.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>

#include "ipc/memory/context_table.h"
#include "os/process/process_calls.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"
#include "support/start_methods.h"

using retinue::ProcessContext;
using retinue::RankContext;
using retinue::Runtime;
using retinue::StartMethod;
using retinue::test::EachStartMethod;

namespace {

void wait_for_the_end(RankContext&) {
  for (;;) pause();
}

void end_before_children(RankContext&, const std::string& how) {
  ProcessContext children = retinue::spawn<wait_for_the_end>({.nprocs = 2, .join = false});
  if (children.pids().at(1) <= 0) throw std::logic_error("no pid");
  if (how == "kill") raise(SIGKILL);
  if (how == "_exit") _exit(0);
  if (how == "throw") throw std::runtime_error("the parent");
}

TEST_P(EachStartMethod, ARankMayEndBeforeTheRanksThatItStarted) {
  for (const std::string how : {"return", "_exit"})
    EXPECT_NO_THROW(retinue::spawn<end_before_children>({.start_method = GetParam()}, how)) << how;
  for (const std::string how : {"kill", "throw"})
    EXPECT_THROW(retinue::spawn<end_before_children>({.start_method = GetParam()}, how), retinue::ProcessException);
  // The guardian is whole, and all blocks but those of this process have come back.
  EXPECT_NO_THROW(retinue::spawn<end_before_children>({.start_method = GetParam()}, "return"));
  EXPECT_EQ(Runtime::current().memory()->allocated_bytes(), 0u);
}

void let_a_child_end(RankContext& context, const std::string& how) {
  const pid_t child = fork();
  if (child == 0) {
    if (how == "exit") std::exit(3);
    if (how == "abort") std::abort();
    std::terminate();
  }
  int status = 0;
  waitpid(child, &status, 0);
  const auto& own = retinue::process_slot(*context.memory(), context.memory()->own_slot());
  if (!own.is_alive()) throw std::logic_error("the rank counts as ended");
  if (own.crash.phase.load() != 0) throw std::logic_error("the rank has its child's crash");
}

TEST_P(EachStartMethod, TheEndOfARanksOwnChildIsNotTheRanks) {
  for (const std::string how : {"exit", "abort", "terminate"})
    EXPECT_NO_THROW(retinue::spawn<let_a_child_end>({.nprocs = 2, .start_method = GetParam()}, how)) << how;
}

sigjmp_buf survival;

void survive_a_signal(RankContext& context) {
  if (context.rank() != 0) return;
  signal(SIGSEGV, [](int) { siglongjmp(survival, 1); });
  if (sigsetjmp(survival, 1) == 0) raise(SIGSEGV);
  throw std::runtime_error("the real reason");
}

TEST_P(EachStartMethod, ASurvivedSignalDoesNotHideTheException) {
  try {
    retinue::spawn<survive_a_signal>({.nprocs = 2, .start_method = GetParam()});
    ADD_FAILURE() << "spawn returned although a rank failed";
  } catch (const retinue::ProcessRaisedException& error) {
    EXPECT_EQ(error.outcome().message, "the real reason");
  }
}

void leave_quietly(RankContext& context, std::uint64_t offset) {
  if (context.rank() == 0) _exit(0);
  usleep(20'000);  // Longer than a stop would take.
  context.memory()->at<int>(offset)[0] = 1;
}

TEST_P(EachStartMethod, AnExitWithCodeZeroStopsNobody) {
  const auto& memory = Runtime::current().memory();
  const retinue::BlockHandle block = memory->allocate(64);
  memory->at<int>(block.offset)[0] = 0;
  EXPECT_NO_THROW(retinue::spawn<leave_quietly>({.nprocs = 2, .start_method = GetParam()}, block.offset));
  EXPECT_EQ(memory->at<int>(block.offset)[0], 1);
  memory->release(block);
}

TEST_P(EachStartMethod, PidsAreKnownAtOnce) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    ProcessContext ranks = retinue::spawn<wait_for_the_end>({.nprocs = 2, .start_method = GetParam(), .join = false});
    for (const int pid : ranks.pids()) EXPECT_GT(pid, 0);
    ranks.terminate();
    ranks.join();
  }
}

ino_t current_directory() {
  struct stat status {};
  return stat(".", &status) == 0 ? status.st_ino : 0;
}

void expect_directory(RankContext&, std::uint64_t expected) {
  if (current_directory() != expected) throw std::logic_error("this is another directory");
}

TEST(Lifetime, ADirectoryThatWasRemovedIsNoObstacle) {
  const auto before = std::filesystem::current_path();
  const auto folder = std::filesystem::temp_directory_path() / ("retinue-removed-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  std::filesystem::current_path(folder);
  std::filesystem::remove(folder);
  EXPECT_NO_THROW(retinue::spawn<expect_directory>({}, std::uint64_t{current_directory()}));
  EXPECT_NO_THROW(retinue::start_processes({}, {retinue::Program{"true", {}, {}}}).join());
  // Its children may enter it when it has ended: an error of theirs would fail this program.
  for (int repeat = 0; repeat < 50; ++repeat) EXPECT_NO_THROW(retinue::spawn<end_before_children>({}, "return"));
  std::filesystem::current_path(before);
}

TEST_P(EachStartMethod, ALongestWaitIsNoShortOne) {
  const retinue::StopPolicy patient = {.terminate_wait = std::chrono::milliseconds::max()};
  ProcessContext ranks =
      retinue::spawn<wait_for_the_end>({.nprocs = 1, .start_method = GetParam(), .join = false, .stop = patient});
  ranks.terminate();
  ranks.join();
  EXPECT_EQ(ranks.status()[0].signal, SIGTERM);
}

std::optional<ProcessContext> held;

TEST(Lifetime, AForkedRankDoesNotLetItsCopyOfAContextGo) {
  held = retinue::spawn<wait_for_the_end>({.nprocs = 1, .join = false});
  retinue::spawn({.nprocs = 1}, [](RankContext&) { held.reset(); });
  EXPECT_FALSE(held->join(std::chrono::milliseconds(1)));
  held->terminate();
  held->join();
  held.reset();
}

TEST(Lifetime, AStoppedHolderOfTheBlockTableIsReportedAndFreesTheJob) {
  const auto& memory = Runtime::current().memory();
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t holder = fork();
  if (holder == 0) {
    const retinue::RobustLock lock(memory->header().blocks.mutex, std::chrono::minutes(1));
    [[maybe_unused]] const auto written = write(ready[1], "x", 1);
    for (;;) pause();
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  memory->set_lock_patience(std::chrono::milliseconds(10));
  try {
    memory->allocate(1);
    ADD_FAILURE() << "the lock was taken twice";
  } catch (const retinue::TimeoutError& error) {
    EXPECT_NE(std::string(error.what()).find("thread " + std::to_string(holder)), std::string::npos) << error.what();
  }
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
  memory->set_lock_patience(std::chrono::seconds(30));
  memory->release(memory->allocate(1));
  close(ready[0]);
  close(ready[1]);
}

INSTANTIATE_TEST_SUITE_P(StartMethods, EachStartMethod, retinue::test::all_start_methods(),
                         retinue::test::start_method_name);

}  // namespace
