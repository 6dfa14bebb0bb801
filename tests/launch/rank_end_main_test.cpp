#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "ipc/memory/job_layout.h"
#include "retinue/collective/communicator.h"
#include "retinue/ipc/queue.h"
#include "retinue/launch/spawn.h"
#include "support/start_methods.h"

using retinue::Communicator;
using retinue::ProcessException;
using retinue::RankContext;
using retinue::RankEnd;
using retinue::test::EachStartMethod;

namespace {

constexpr std::size_t kBytes = std::size_t{64} << 20;

void work_and_fail(RankContext&) {
  const std::unique_ptr<char[]> memory(new char[kBytes]);
  std::memset(memory.get(), 1, kBytes);
  const std::clock_t begin = std::clock();
  while (std::clock() - begin < CLOCKS_PER_SEC / 20) continue;
  throw std::runtime_error(std::to_string(memory[kBytes - 1]));
}

TEST_P(EachStartMethod, WhatARankUsedIsReported) {
  try {
    retinue::spawn<work_and_fail>({.start_method = GetParam()});
    ADD_FAILURE() << "spawn returned although the rank failed";
  } catch (const ProcessException& error) {
    const retinue::ResourceUse& use = error.outcome().use;
    EXPECT_GE(use.user_cpu + use.system_cpu, std::chrono::milliseconds(50)) << error.what();
    EXPECT_GE(use.lifetime, std::chrono::milliseconds(50)) << error.what();
    EXPECT_GE(use.peak_memory_bytes, kBytes) << error.what();
    EXPECT_NE(std::string(error.what()).find("of CPU"), std::string::npos) << error.what();
  }
}

volatile std::sig_atomic_t is_asked_to_end = 0;

/// Rank 0 fails when the others have set up how they end.
void answer_sigterm(RankContext& context) {
  sigset_t terminate, before;
  sigemptyset(&terminate);
  sigaddset(&terminate, SIGTERM);
  sigprocmask(SIG_BLOCK, &terminate, &before);
  signal(SIGTERM, [](int) { is_asked_to_end = 1; });
  Communicator(context.world()).barrier();
  if (context.rank() == 0) throw std::runtime_error("the cause");
  while (is_asked_to_end == 0) sigsuspend(&before);
  if (context.rank() == 2) throw std::runtime_error("interrupted");
}

TEST_P(EachStartMethod, WhoEndsOnSigtermIsToldFromWhoFails) {
  try {
    retinue::spawn<answer_sigterm>({.nprocs = 3, .start_method = GetParam()});
    ADD_FAILURE() << "spawn returned although a rank failed";
  } catch (const ProcessException& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.rank(), 0) << text;
    EXPECT_EQ(error.outcome().stopped.count(), 0) << text;
    EXPECT_EQ(error.outcomes()[1].end, RankEnd::kReturned) << text;
    EXPECT_NE(text.find("returned after the job's SIGTERM"), std::string::npos) << text;
    EXPECT_EQ(error.outcomes()[2].end, RankEnd::kRaised) << text;
    EXPECT_NE(text.find("raised after the job's SIGTERM: std::runtime_error: interrupted"), std::string::npos) << text;
  }
}

/// Rank 0 hangs in an exit handler after its function has returned; rank 1 fails when it does.
void hang_at_exit(RankContext& context) {
  if (context.rank() == 0) {
    std::at_quick_exit([] { pause(); });
    std::atexit([] { pause(); });
    return;
  }
  const auto& slot = process_slot(*context.memory(), context.world().process_slots[0]);
  while (slot.state.load() != retinue::ProcessState::kFinished) std::this_thread::yield();
  throw std::runtime_error("the cause");
}

TEST_P(EachStartMethod, OneThatIsStoppedOnItsWayOutHasReturned) {
  try {
    retinue::spawn<hang_at_exit>({.nprocs = 2, .start_method = GetParam()});
    ADD_FAILURE() << "spawn returned although a rank failed";
  } catch (const ProcessException& error) {
    EXPECT_EQ(error.rank(), 1) << error.what();
    EXPECT_EQ(error.outcomes()[0].end, RankEnd::kReturned) << error.what();
  }
}

enum class Back { kReturns, kThrows };

/// Its child comes back from the function before it does. What both say on stderr goes to `text`.
int fork_and_go_on(RankContext& context, Back back, retinue::Queue<std::string> text) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    if (back == Back::kThrows) throw std::runtime_error("of a child");
    return 99;
  }
  close(ends[1]);
  std::string said(4096, ' ');
  said.resize(static_cast<std::size_t>(std::max(read(ends[0], said.data(), said.size()), ssize_t{0})));
  int status = -1;
  waitpid(child, &status, 0);
  text.put(fmt::format("{} with status {:x}", said, status));
  Communicator(context.world()).barrier();
  return context.rank();
}

TEST_P(EachStartMethod, AChildThatComesBackFromItsFunctionIsNoRank) {
  for (const Back back : {Back::kReturns, Back::kThrows}) {
    retinue::Queue<std::string> text({.capacity = 2});
    const auto result =
        retinue::spawn<fork_and_go_on>({.nprocs = 2, .start_method = GetParam(), .join = false}, back, text).wait();
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(result.value<int>(rank), rank);
      const std::string said = text.get();
      EXPECT_NE(said.find(back == Back::kReturns
                              ? "left that function: it returned. It is not a rank"
                              : "left that function: it threw std::runtime_error: of a child. It is not a rank"),
                std::string::npos)
          << said;
      EXPECT_NE(said.find("with status 100"), std::string::npos) << said;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(StartMethods, EachStartMethod, retinue::test::all_start_methods(),
                         retinue::test::start_method_name);

}  // namespace
