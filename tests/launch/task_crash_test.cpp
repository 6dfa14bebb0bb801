// Who runs tasks, or gives them, is killed at each point of what the two do with the board; the survivors go on. The
// sources of both sides, and of what lies under them, are compiled here once more, with these points in them.
#define RETINUE_CRASH_POINTS
#include "ipc/memory/block_owners.cpp"    // NOLINT(bugprone-suspicious-include)
#include "ipc/memory/locked_blocks.cpp"   // NOLINT(bugprone-suspicious-include)
#include "ipc/memory/payload.cpp"         // NOLINT(bugprone-suspicious-include)
#include "ipc/queue/message_channel.cpp"  // NOLINT(bugprone-suspicious-include)
#include "ipc/ring/message_ring.cpp"      // NOLINT(bugprone-suspicious-include)
#include "ipc/ring/ring_repair.cpp"       // NOLINT(bugprone-suspicious-include)
#include "ipc/ring/ring_slots.cpp"        // NOLINT(bugprone-suspicious-include)
#include "ipc/ring/ring_user.cpp"         // NOLINT(bugprone-suspicious-include)
#include "launch/tasks/task_board.cpp"    // NOLINT(bugprone-suspicious-include)
#include "launch/tasks/task_client.cpp"   // NOLINT(bugprone-suspicious-include)
#include "launch/tasks/task_server.cpp"   // NOLINT(bugprone-suspicious-include)

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "ipc/crash_fixture.h"
#include "ipc/memory/ring_owner.h"
#include "launch/task_crash_client.h"
#include "launch/task_crash_scenes.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;
using test::CrashClient;
using test::Given;
using test::notes;

constexpr auto kPatience = 20s;  // A wait that takes longer fails the test.

class TaskCrashTest : public CrashTest {
 protected:
  TaskCrashTest() { test::forget_runs(); }  // Made here, before any fork.

  /// Runs what is queued, in this process, which nobody kills meanwhile.
  void serve(const TaskBoard& board, std::chrono::nanoseconds timeout = 0ns) {
    const long left = std::exchange(points_left, 0);
    RankContext self(memory_, memory_->own_slot());
    serve_tasks(board, self, {.timeout = timeout});
    points_left = left;
  }
  /// What a worker does.
  Victim start_worker(long point, const TaskBoard& board, std::chrono::nanoseconds timeout) {
    return start_victim(point, [&, timeout] {
      RankContext self(memory_, memory_->own_slot());
      serve_tasks(TaskBoard(board.blocks()), self, {.timeout = timeout});
    });
  }

  static CrashClient::Worker worker_of(const Victim& victim) { return {victim.slot, victim.pid}; }

  /// All functions are known to the board, and all kinds of tasks were done: what that allocates is there to stay.
  std::size_t warm_up(CrashClient& client) {
    {
      std::vector<Given> given = test::give_each_kind(client, 0);
      serve(client.board());
      wait_for_all(client, given);
      for (const Given& each : given) test::check_result(each);
    }
    test::forget_runs();
    return memory_->allocated_bytes();
  }
  static void wait_for_all(CrashClient& client, const std::vector<Given>& given) {
    std::vector<detail::TaskPtr> tasks;
    for (const Given& each : given) tasks.push_back(each.task);
    ASSERT_TRUE(detail::wait_for_all(client, tasks, kPatience)) << "a result does not come";
  }

  /// Nothing is left of what was, and each record and each slot can be used.
  void check_usable(CrashClient& client) {
    const TaskBoard& board = client.board();
    for (std::uint32_t i = 0; i < board.header().record_count; ++i)
      ASSERT_EQ(TaskState(board.record(i).state.load()).phase(), TaskState::Phase::kFree) << "record " << i;
    std::vector<Given> given;
    for (std::uint32_t i = 0; i < board.header().record_count; ++i) given.push_back(test::give_small(client, 90));
    serve(board);
    wait_for_all(client, given);
    for (const Given& each : given) test::check_result(each);
    check_queues(board);
  }
  static void check_queues(const TaskBoard& board) {
    EXPECT_EQ(board.tasks().size(), 0u);
    EXPECT_EQ(board.done().size(), 0u);
    for (detail::MessageChannel* queue : {&board.tasks(), &board.done()}) {
      std::size_t count = 0;
      while (queue->put_word(TaskName().word(), 0ns)) ++count;
      EXPECT_EQ(count, queue->capacity()) << "a slot is lost";
    }
    std::array<std::uint64_t, 64> words;
    while (board.done().take_words(words, 0ns) != 0) continue;
    detail::TakenMessage taken;
    while (board.tasks().take(taken, 0ns)) board.tasks().finish(taken);
  }

  /// Each result has come, or its task is said to be lost: only what the dead one had in hand, and not where it is
  /// tried again.
  static void check_results(const std::vector<Given>& given, bool has_died, int retries) {
    int lost = 0;
    int more_runs = 0;
    for (const Given& each : given) {
      const int runs = notes().runs[each.id];
      try {
        test::check_result(each);
        EXPECT_GE(runs, 1) << "task " << each.id;
      } catch (const ProcessExitedException&) {
        ++lost;
      }
      more_runs += std::max(runs - 1, 0);
    }
    EXPECT_LE(lost, has_died && retries == 0 ? 1 : 0);
    EXPECT_LE(more_runs, has_died && retries != 0 ? 1 : 0) << "a task ran twice";
  }

  /// Kills `die(point)` at its first point, its second, and so on, until it comes through; returns how many there are.
  template <class Die>
  long sweep(Die die) {
    for (long point = 1;; ++point) {
      SCOPED_TRACE("point " + std::to_string(point));
      const bool has_ended = die(point);
      EXPECT_EQ(memory_->allocated_bytes(), 0u);
      if (has_ended || HasFailure()) return point - 1;
    }
  }

  bool kill_worker(long point, int retries) {
    CrashClient client(memory_, retries);
    const std::size_t before = warm_up(client);
    std::vector<Given> given = test::give_each_kind(client, 1);
    client.board().tasks().put_word(TaskName().word(), 0ns);  // As if one were to leave.
    const bool has_ended = client.bury(worker_of(start_worker(point, client.board(), 0ns)));
    EXPECT_TRUE(bury(start_worker(0, client.board(), 0ns)));
    wait_for_all(client, given);
    if (HasFatalFailure()) return has_ended;
    check_results(given, !has_ended, retries);
    given.clear();
    EXPECT_EQ(memory_->allocated_bytes(), before) << "something is left of the tasks";
    check_usable(client);
    return has_ended;
  }

  /// Gives, waits, and fails what is not done, all as a Pool does.
  void be_giver() {
    CrashClient client(memory_, 0);
    test::leave_board(client.board());
    for (int round = 0; round < 2; ++round) {
      const std::vector<Given> given = test::give_each_kind(client, 1 + 10 * round);
      serve(client.board());
      wait_for_all(client, given);
    }
    const std::vector<Given> never_done = test::give_each_kind(client, 21);
    client.fail();
    if (HasFailure()) _exit(1);
    notes().has_board = 0;
  }

  /// What is left when a giver dies is of no use to anybody, but whole.
  bool kill_giver(long point) {
    test::forget_runs();
    const Victim giver = start_victim(point, [this] { be_giver(); });
    int status = 0;
    EXPECT_EQ(waitpid(giver.pid, &status, 0), giver.pid);
    const std::optional<TaskBoardBlocks> blocks = test::left_board(memory_);  // As a worker holds it.
    process_slot(*memory_, giver.slot).state.store(ProcessState::kDead);
    free_process_slot(*memory_, giver.slot);
    EXPECT_TRUE(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : status == 0);
    if (!blocks) return WIFEXITED(status);
    const TaskBoard board(*blocks);
    EXPECT_TRUE(bury(start_worker(0, board, 0ns)));
    EXPECT_EQ(board.tasks().size(), 0u);
    for (const std::atomic<int>& runs : notes().runs) EXPECT_LE(runs.load(), 1) << "a task ran twice";
    EXPECT_EQ(notes().torn, 0) << "a task came before it was whole";
    std::array<std::uint64_t, 64> words;
    while (board.done().take_words(words, 0ns) != 0) continue;
    check_queues(board);
    return WIFEXITED(status);
  }
};

TEST_F(TaskCrashTest, WorkerIsKilledAnywhere) {
  EXPECT_GE(sweep([this](long point) { return kill_worker(point, 0); }), 100);
}

TEST_F(TaskCrashTest, WorkerIsKilledAnywhereAndItsTaskIsRetried) {
  EXPECT_GE(sweep([this](long point) { return kill_worker(point, 1); }), 100);
}

TEST_F(TaskCrashTest, GiverIsKilledAnywhere) {
  EXPECT_GE(sweep([this](long point) { return kill_giver(point); }), 300);
}

TEST_F(TaskCrashTest, ForksTellOfTheirOwnExceptions) {
  const auto report_of = [](const std::string& message) {
    try {
      throw std::out_of_range(message);
    } catch (...) {
      return detail::report_current_exception().message;
    }
  };
  EXPECT_EQ(report_of("before"), "before");
  std::vector<Victim> forks;
  for (const char* name : {"one", "another one"}) {
    forks.push_back(start_victim(0, [&] {
      for (int i = 0; i < 20000; ++i)
        if (report_of(name) != name) _exit(1);
    }));
  }
  for (const Victim& each : forks) {
    int status = -1;
    EXPECT_EQ(waitpid(each.pid, &status, 0), each.pid);
    EXPECT_EQ(status, 0) << "it told of another's exception";
    process_slot(*memory_, each.slot).state.store(ProcessState::kDead);
    free_process_slot(*memory_, each.slot);
  }
}

/// As it is in a Pool: the giver sleeps, and is woken by results and by deaths; workers die awake and asleep.
TEST_F(TaskCrashTest, SurvivorsGoOnWhileWorkersDie) {
  CrashClient client(memory_, 1);
  const std::size_t before = warm_up(client);
  const Victim survivor = start_worker(0, client.board(), std::chrono::nanoseconds::max());
  std::mt19937 random(1);
  for (int round = 0; round < 60 && !HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    test::forget_runs();
    const long point = std::uniform_int_distribution<long>(1, 120)(random);
    client.watch(worker_of(start_worker(point, client.board(), kPatience)));
    std::vector<Given> given = test::give_each_kind(client, 1);
    for (Given& each : test::give_each_kind(client, 11)) given.push_back(std::move(each));
    wait_for_all(client, given);
    client.kill_watched();  // If it lives, it sleeps.
    check_results(given, true, 1);
  }
  client.board().tasks().close();
  EXPECT_TRUE(bury(survivor));
  EXPECT_EQ(memory_->allocated_bytes(), before);
}

}  // namespace
}  // namespace retinue
