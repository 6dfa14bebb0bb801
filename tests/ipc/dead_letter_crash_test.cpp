// A process is killed at each point of what it does with a message that killed its consumers: the message is then in
// one of the two queues, once, and both go on. The ring's sources are compiled here once more, with these points in
// them.
#define RETINUE_CRASH_POINTS
#include "ipc/memory/block_owners.cpp"   // NOLINT(bugprone-suspicious-include)
#include "ipc/memory/locked_blocks.cpp"  // NOLINT(bugprone-suspicious-include)
#include "ipc/ring/message_ring.cpp"     // NOLINT(bugprone-suspicious-include)
#include "ipc/ring/ring_arrivals.cpp"    // NOLINT(bugprone-suspicious-include)
#include "ipc/ring/ring_losses.cpp"      // NOLINT(bugprone-suspicious-include)
#include "ipc/ring/ring_repair.cpp"      // NOLINT(bugprone-suspicious-include)
#include "ipc/ring/ring_slots.cpp"       // NOLINT(bugprone-suspicious-include)
#include "ipc/ring/ring_user.cpp"        // NOLINT(bugprone-suspicious-include)

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <set>
#include <vector>

#include "ipc/crash_victim.h"
#include "ring_scenes.h"
#include "support/job_test.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;

enum class Kills { kOne, kTwo };

class DeadLetterCrashTest : public test::JobTest {
 protected:
  /// Runs `body` in a process that is killed at `point`; true: it came through, and then it ended.
  bool run_victim(long point, const std::function<void()>& body) {
    const Victim victim = retinue::start_victim(*memory_, point, body);
    int status = 0;
    EXPECT_EQ(waitpid(victim.pid, &status, 0), victim.pid);
    process_slot(*memory_, victim.slot).state.store(ProcessState::kDead);
    dead_.push_back(victim.slot);
    return WIFEXITED(status);
  }
  void free_the_dead() {
    for (const std::uint32_t slot : dead_) free_process_slot(*memory_, slot);
    dead_.clear();
  }

  template <class T>
  void sweep(Queue<T>& queue) {
    MessageRing(*memory_, detail::encode_value(queue).references.at(0).handle()).sweep(0, ~0u);
  }
  template <class M>
  static void hold_all(QueueOf<M>& queue) {
    while (queue.try_get()) continue;
  }
  template <class M>
  static std::vector<int> drain(QueueOf<M>& queue, bool is_joinable) {
    std::vector<int> ids;
    while (const auto message = queue.try_get()) {
      ids.push_back(M::id(*message));
      if (is_joinable) queue.task_done();
    }
    return ids;
  }
  /// All slots can be used.
  template <class M>
  static void check_usable(QueueOf<M>& queue, bool is_joinable) {
    std::vector<int> ids;
    for (int id = 1; queue.try_put(M::of(id)); ++id) ids.push_back(id);
    EXPECT_EQ(ids.size(), queue.capacity()) << "a slot is lost";
    EXPECT_EQ(drain<M>(queue, is_joinable), ids);
  }

  static QueueOptions options(const QueueBase& dead_letters, std::uint32_t most) {
    return {.capacity = 3,
            .on_consumer_death = OnConsumerDeath::kRedeliver,
            .joinable = true,
            .max_deliveries = most,
            .dead_letters = dead_letters};
  }

  /// A process is killed at each point of moving the messages, and with kTwo another one, who finds it dead, at
  /// each of its own. Returns how many points the first one has.
  template <class M>
  long sweep_moves(int messages, Kills kills) {
    long first = 1;
    for (bool first_ended = false; !first_ended; ++first) {
      long second = kills == Kills::kTwo ? 1 : 0;
      for (bool second_ended = false; !second_ended; ++second) {
        SCOPED_TRACE("points " + std::to_string(first) + ", " + std::to_string(second));
        {
          QueueOf<M> letters(memory_, {.capacity = 4});
          // This thread is alone on both sides.
          letters.put(M::of(99));
          EXPECT_EQ(M::id(letters.get()), 99);
          QueueOf<M> queue(memory_, options(letters, 1));
          for (int i = 0; i < messages; ++i) queue.put(M::of(kFirstOfParent + i));
          run_victim(0, [&] { hold_all<M>(queue); });
          first_ended = run_victim(first, [&] { sweep(queue); });
          second_ended = kills == Kills::kOne || run_victim(second, [&] {
                           sweep(queue);
                           sweep(letters);
                         });
          check_moved<M>(queue, letters, messages);
        }
        free_the_dead();
        EXPECT_EQ(memory_->allocated_bytes(), 0u);
        if (HasFailure()) return first;
      }
    }
    return first - 1;
  }

  template <class M>
  void check_moved(QueueOf<M>& queue, QueueOf<M>& letters, int messages) {
    for (int i = 0; i < 3; ++i) {
      sweep(letters);
      sweep(queue);
    }
    EXPECT_TRUE(queue.join(0ns)) << "somebody waits for a message that is not there";
    EXPECT_TRUE(drain<M>(queue, true).empty());
    const std::vector<int> ids = drain<M>(letters, false);
    EXPECT_EQ(ids.size(), static_cast<std::size_t>(messages));
    std::set<int> expected;
    for (int i = 0; i < messages; ++i) expected.insert(kFirstOfParent + i);
    EXPECT_EQ(std::set<int>(ids.begin(), ids.end()), expected);
    EXPECT_EQ(queue.lost() + letters.lost(), 0u);
    check_usable<M>(queue, true);
    check_usable<M>(letters, false);
  }

  std::vector<std::uint32_t> dead_;
};

TEST_F(DeadLetterCrashTest, WhoMovesIsKilledAnywhere) {
  EXPECT_GE(sweep_moves<WordMessage>(3, Kills::kOne), 30);
  EXPECT_GE(sweep_moves<WideMessage>(3, Kills::kOne), 30);
  EXPECT_GE(sweep_moves<LongMessage>(3, Kills::kOne), 40);
  EXPECT_GE(sweep_moves<BlockMessage>(3, Kills::kOne), 40);
}

TEST_F(DeadLetterCrashTest, WhoEndsADeadOnesMoveIsKilledAnywhere) {
  EXPECT_GE(sweep_moves<WordMessage>(1, Kills::kTwo), 10);
  EXPECT_GE(sweep_moves<LongMessage>(1, Kills::kTwo), 15);
  EXPECT_GE(sweep_moves<BlockMessage>(1, Kills::kTwo), 15);
}

/// Of a queue that is gone before anybody ends the move of its message, each message arrives, or was not taken from it.
TEST_F(DeadLetterCrashTest, AMoveOfAQueueThatIsGoneEnds) {
  for (long point = 1;; ++point) {
    SCOPED_TRACE("point " + std::to_string(point));
    bool has_ended = false;
    {
      Queue<std::vector<int>> letters(memory_, {.capacity = 4});
      {
        Queue<std::vector<int>> queue(memory_, options(letters, 1));
        queue.put(LongMessage::of(1));
        run_victim(0, [&] { hold_all<LongMessage>(queue); });
        has_ended = run_victim(point, [&] { sweep(queue); });
      }
      free_the_dead();
      sweep(letters);
      sweep(letters);
      EXPECT_LE(drain<LongMessage>(letters, false).size(), 1u);
      check_usable<LongMessage>(letters, false);
    }
    EXPECT_EQ(memory_->allocated_bytes(), 0u);
    if (has_ended || HasFailure()) break;
  }
}

/// Who counts a loss for want of room is killed at it, then there is room, and a producer finds the message first: it
/// is lost, or a dead letter, and never both.
TEST_F(DeadLetterCrashTest, WhoLosesForWantOfRoomIsKilledAnywhere) {
  for (long point = 1;; ++point) {
    SCOPED_TRACE("point " + std::to_string(point));
    bool has_ended = false;
    {
      Queue<std::vector<int>> letters(memory_, {.capacity = 1});
      letters.put(LongMessage::of(99));
      Queue<std::vector<int>> queue(memory_, options(letters, 1));
      queue.put(LongMessage::of(1));
      run_victim(0, [&] { hold_all<LongMessage>(queue); });
      has_ended = run_victim(point, [&] { sweep(queue); });
      EXPECT_EQ(drain<LongMessage>(letters, false), std::vector<int>{99});
      while (queue.try_put(LongMessage::of(2))) continue;
      for (int i = 0; i < 2; ++i) {
        sweep(queue);
        sweep(letters);
      }
      const std::vector<int> ids = drain<LongMessage>(letters, false);
      EXPECT_EQ(ids.size() + queue.lost(), 1u);
      EXPECT_TRUE(ids.empty() || ids.front() == 1);
      drain<LongMessage>(queue, true);
      check_usable<LongMessage>(queue, true);
      check_usable<LongMessage>(letters, false);
    }
    free_the_dead();
    EXPECT_EQ(memory_->allocated_bytes(), 0u);
    if (has_ended || HasFailure()) {
      EXPECT_GE(point, 10);
      break;
    }
  }
}

/// Deaths are counted although who gets a message again is killed at any point of that.
TEST_F(DeadLetterCrashTest, DeliveriesAreCountedWhoeverDies) {
  long point = 1;
  for (bool has_ended = false; !has_ended; ++point) {
    SCOPED_TRACE("point " + std::to_string(point));
    {
      Queue<int> letters(memory_, {.capacity = 1});
      Queue<int> queue(memory_, options(letters, 3));
      queue.put(7);
      run_victim(0, [&] { queue.get(); });
      sweep(queue);
      EXPECT_EQ(queue.size(), 1u);
      has_ended = run_victim(point, [&] { queue.try_get(); });
      sweep(queue);
      EXPECT_EQ(queue.size(), 1u) << "it was delivered twice at most";
      // One delivery is left, or two where the second victim died before it had the message.
      int left = 0;
      for (; queue.size() == 1; ++left) {
        ASSERT_LT(left, 3);
        run_victim(0, [&] { queue.get(0ns); });
        sweep(queue);
      }
      EXPECT_GE(left, 1);
      EXPECT_LE(left, has_ended ? 1 : 2);
      EXPECT_EQ(letters.try_get(), 7);
      EXPECT_EQ(queue.lost(), 0u);
    }
    free_the_dead();
    if (HasFailure()) break;
  }
  EXPECT_GE(point, 4);
}

/// Each loss is counted once, and kept.
TEST_F(DeadLetterCrashTest, WhoCountsALossIsKilledAnywhere) {
  for (long point = 1;; ++point) {
    SCOPED_TRACE("point " + std::to_string(point));
    bool has_ended = false;
    {
      Queue<std::vector<int>> queue(memory_, {.capacity = 2, .joinable = true});
      queue.put(WideMessage::of(1));
      queue.put(LongMessage::of(2));
      run_victim(0, [&] { hold_all<WideMessage>(queue); });
      has_ended = run_victim(point, [&] { sweep(queue); });
      sweep(queue);
      EXPECT_EQ(queue.lost(), 2u);
      const std::vector<LostMessage> lost = queue.lost_messages();
      ASSERT_EQ(lost.size(), 2u);
      EXPECT_EQ(lost[0].number, 1u);
      EXPECT_EQ(lost[0].bytes, 12u);
      EXPECT_EQ(lost[1].number, 2u);
      EXPECT_EQ(lost[1].bytes, 4000u);
      EXPECT_TRUE(queue.join(0ns));
      check_usable<WideMessage>(queue, true);
    }
    free_the_dead();
    EXPECT_EQ(memory_->allocated_bytes(), 0u);
    if (has_ended || HasFailure()) {
      EXPECT_GE(point, 15);
      break;
    }
  }
}

}  // namespace
}  // namespace retinue
