// Who is called late where ranks wait for each other in a row.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <span>
#include <string>

#include "collective/board/rendezvous.h"
#include "collective/board/wait_record.h"
#include "collective/late_scene.h"
#include "ipc/memory/job_clock.h"
#include "os/process/process_look.h"
#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "support/captured_stderr.h"
#include "support/fork_shared.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/wait_until.h"

namespace retinue::test {
namespace {

using namespace std::chrono_literals;

/// Whether the member waits, and others see that.
bool waits(const JobGroup& group, int rank) {
  for (const SeenGroup& seen : groups_of_job(group, JobDeadline::after(group.memory->header(), 1s)))
    if (seen.name == group.name) return read_wait(seen.board.member(rank).wait).has_value();
  return false;
}

void await(const std::function<bool()>& is_true) {
  EXPECT_TRUE(wait_until(is_true));
}

/// Takes rank + 1's message and sends rank - 1 one; rank 0 begins when all between it and the last wait.
void pass_on(const JobGroup& group, Communicator& communicator) {
  const int last = communicator.size() - 1;
  int value = 0;
  for (int rank = 1; group.rank == 0 && rank < last; ++rank) await([&] { return waits(group, rank); });
  if (group.rank < last) communicator.recv(std::span(&value, 1), group.rank + 1);
  if (group.rank > 0) communicator.send(std::span(&value, 1), group.rank - 1);
}

TEST(LateChain, TheLastOneIsLate) {
  const CapturedStderr captured;
  run_ranks(4, [&](const JobGroup& group) {
    captured.begin();
    Communicator communicator(group, {.late_after = group.rank == 0 ? kLateAfter : 0s});
    if (group.rank == 3) await([&] { return count_of(captured.text(), "This report repeats") == 1; });
    pass_on(group, communicator);
  });
  const std::string text = captured.text();
  EXPECT_EQ(count_of(text, "rank 3 is late\n"), 1) << text;
  EXPECT_EQ(count_of(text, " is missing"), 1) << text;
  EXPECT_EQ(count_of(text, " waits to receive "), 3) << text;
}

TEST(LateChain, AnErrorNamesTheLastOneToo) {
  const ForkShared<std::atomic<bool>> done;
  run_ranks(4, [&](const JobGroup& group) {
    Communicator communicator(group, {.timeout = 10min, .late_after = 0s});
    if (group.rank == 3) return await([&] { return done->load(); });
    if (group.rank == 0) await([&] { return waits(group, 1) && waits(group, 2); });
    communicator.set_timeout(group.rank == 0 ? 50ms : 10min);
    int value = 0;
    try {
      communicator.recv(std::span(&value, 1), group.rank + 1);
      ADD_FAILURE() << "nobody sent";
    } catch (const TimeoutError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("missing: rank 1 (pid "), std::string::npos) << text;
      EXPECT_NE(text.find("; the chain of waits ends at rank 3 (pid "), std::string::npos) << text;
      EXPECT_EQ(text.find("rank 2 (pid "), std::string::npos) << text;
    }
    *done = true;
  });
}

TEST(LateChain, AllThatOthersWaitForAreLate) {
  const CapturedStderr captured;
  run_ranks(4, [&](const JobGroup& group) {
    captured.begin();
    Communicator communicator(group, {.late_after = group.rank == 0 ? kLateAfter : 0s});
    int value = 0;
    if (group.rank == 0) await([&] { return waits(group, 2); });
    if (group.rank % 2 == 0) return static_cast<void>(communicator.recv(std::span(&value, 1), group.rank + 1));
    await([&] { return count_of(captured.text(), "This report repeats") == 1; });
    communicator.send(std::span(&value, 1), group.rank - 1);
  });
  EXPECT_EQ(count_of(captured.text(), "ranks 1 and 3 are late\n"), 1) << captured.text();
}

/// What it said of its wait may be long over: it can't say otherwise.
TEST(LateChain, AStoppedOneInItIsLate) {
  const CapturedStderr captured;
  const ForkShared<std::atomic<pid_t>> middle;
  run_ranks(3, [&](const JobGroup& group) {
    captured.begin();
    Communicator communicator(group, {.late_after = group.rank == 0 ? kLateAfter : 0s});
    if (group.rank == 1) *middle = getpid();
    int value = 0;
    if (group.rank == 2) {
      await([&] { return waits(group, 1); });
      kill(*middle, SIGSTOP);
      await([&] { return state_of_thread(*middle, *middle) == 'T'; });
      communicator.send(std::span(&value, 1), 1);
      await([&] { return count_of(captured.text(), "This report repeats") == 1; });
      kill(*middle, SIGCONT);
    } else {
      if (group.rank == 0) await([&] { return *middle != 0 && state_of_thread(*middle, *middle) == 'T'; });
      pass_on(group, communicator);
    }
  });
  const std::string text = captured.text();
  EXPECT_EQ(count_of(text, "rank 1 is late\n"), 1) << text;
  EXPECT_EQ(count_of(text, "it is stopped (SIGSTOP or the like)"), 1) << text;
}

/// Any of many may end its wait, and need not.
TEST(LateChain, OneThatWaitsForAnybodyIsLate) {
  const CapturedStderr captured;
  run_ranks(3, [&](const JobGroup& group) {
    captured.begin();
    Communicator communicator(group, {.late_after = group.rank == 0 ? kLateAfter : 0s});
    int value = 0;
    if (group.rank == 0) await([&] { return waits(group, 1); });
    if (group.rank == 1) communicator.recv(std::span(&value, 1), kAnySource);
    if (group.rank == 2) {
      await([&] { return count_of(captured.text(), "This report repeats") == 1; });
      communicator.send(std::span(&value, 1), 1);
    }
    communicator.barrier();
  });
  const std::string text = captured.text();
  EXPECT_EQ(count_of(text, "ranks 1 and 2 are late\n"), 1) << text;
  EXPECT_EQ(count_of(text, "    in group \"test group\" rank 1 waits to receive at most 4 bytes from any rank"), 1)
      << text;
}

/// Of those that may send something who has left will not.
TEST(LateChain, WhoLeftIsNotLateForAnybodysMessage) {
  const CapturedStderr captured;
  const ForkShared<std::atomic<pid_t>> leaver;
  run_ranks(3, [&](const JobGroup& group) {
    captured.begin();
    Communicator communicator(group, {.late_after = group.rank == 0 ? kLateAfter : 0s});
    int value = 0;
    if (group.rank == 0) {
      communicator.recv(std::span(&value, 1), 2);
      await([&] { return *leaver != 0 && identity_of_process(*leaver).empty(); });
      communicator.recv(std::span(&value, 1), kAnySource);
    } else {
      if (group.rank == 2) *leaver = getpid();
      if (group.rank == 1) await([&] { return count_of(captured.text(), "This report repeats") == 1; });
      communicator.send(std::span(&value, 1), 0);
    }
  });
  const std::string text = captured.text();
  EXPECT_EQ(count_of(text, "rank 1 is late\n"), 1) << text;
}

}  // namespace
}  // namespace retinue::test
