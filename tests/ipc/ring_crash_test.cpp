// A process is killed at each point of everything that a queue does; the survivors go on. The ring's sources, and those
// of who owns blocks, are compiled here once more, with these points in them.
#define RETINUE_CRASH_POINTS
#include "ipc/memory/block_owners.cpp"    // NOLINT(bugprone-suspicious-include)
#include "ipc/memory/locked_blocks.cpp"   // NOLINT(bugprone-suspicious-include)
#include "ipc/queue/message_channel.cpp"  // NOLINT(bugprone-suspicious-include)
#include "ipc/ring/message_ring.cpp"      // NOLINT(bugprone-suspicious-include)
#include "ipc/ring/ring_arrivals.cpp"     // NOLINT(bugprone-suspicious-include)
#include "ipc/ring/ring_losses.cpp"       // NOLINT(bugprone-suspicious-include)
#include "ipc/ring/ring_repair.cpp"       // NOLINT(bugprone-suspicious-include)
#include "ipc/ring/ring_slots.cpp"        // NOLINT(bugprone-suspicious-include)
#include "ipc/ring/ring_user.cpp"         // NOLINT(bugprone-suspicious-include)

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <new>
#include <random>
#include <set>
#include <vector>

#include "ipc/crash_victim.h"
#include "ipc/memory/job_layout.h"
#include "ring_scenes.h"
#include "support/fork_shared.h"
#include "support/job_test.h"

namespace retinue {

namespace {

using namespace std::chrono_literals;

class RingCrashTest : public test::JobTest {
 protected:
  /// Runs `body` in a process with a slot of its own; returns the slot, whose process is not yet known to be dead.
  std::uint32_t run_victim(long point, const std::function<void()>& body, int& status) {
    const auto [slot, pid] = start_victim(*memory_, point, body);
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return slot;
  }

  void mark_dead(std::uint32_t slot) { process_slot(*memory_, slot).state.store(ProcessState::kDead); }
  template <class M>
  std::vector<int> drain(QueueOf<M>& queue) {
    std::vector<int> ids;
    try {
      while (const auto message = queue.try_get()) {
        ids.push_back(M::id(*message));
        if (is_joinable_) queue.task_done();
      }
    } catch (const Closed&) {
      // Nothing is left.
    }
    return ids;
  }

  /// Survivors use the queue: all that must be there is, nothing is twice or out of order.
  template <class M>
  void check(QueueOf<M>& queue, const Scene<M>& scene, const std::vector<std::uint32_t>& dead) {
    std::vector<int> ids = drain<M>(queue);
    for (const std::uint32_t slot : dead) mark_dead(slot);
    MessageRing(*memory_, detail::encode_value(queue).references.at(0).handle()).sweep(0, ~0u);
    for (const int id : drain<M>(queue)) ids.push_back(id);
    const std::set<int> different(ids.begin(), ids.end());
    EXPECT_EQ(different.size(), ids.size()) << "a message came twice";
    int of_victim = 0;
    int of_parent = 0;
    for (const int id : different) (id < kFirstOfParent ? of_victim : of_parent)++;
    EXPECT_GE(of_victim, progress_->put.load());
    EXPECT_LE(of_victim, progress_->put.load() + scene.at_once);
    for (int i = 0; i < of_victim; ++i) EXPECT_TRUE(different.contains(kFirstOfVictim + i));
    check_consumed<M>(queue, scene, scene.before - of_parent);
    check_usable<M>(queue, scene);
  }

  /// Of the parent's messages `gone` were not there any more: not more than what the victim had, or was busy with.
  template <class M>
  void check_consumed(const QueueOf<M>& queue, const Scene<M>& scene, int gone) {
    const bool redelivers = scene.options.on_consumer_death == OnConsumerDeath::kRedeliver;
    const int got = progress_->got.load();
    const int done = scene.options.joinable ? progress_->done.load() : got;
    EXPECT_GE(gone, done);
    EXPECT_LE(gone, (redelivers ? done : got) + scene.at_once);
    const int lost = static_cast<int>(queue.lost());
    EXPECT_LE(lost, redelivers ? 0 : gone - done);
    EXPECT_GE(lost, redelivers ? 0 : gone - done - scene.at_once);
  }
  template <class M>
  void check_usable(QueueOf<M>& queue, const Scene<M>& scene) {
    EXPECT_TRUE(!is_joinable_ || queue.join(0ns));
    if (queue.is_closed()) {
      EXPECT_THROW(queue.try_put(M::of(1)), Closed);
      EXPECT_THROW(queue.try_get(), Closed);
      return;
    }
    std::vector<int> ids;
    for (int id = 1; queue.try_put(M::of(id)); ++id) ids.push_back(id);
    EXPECT_EQ(ids.size(), scene.options.capacity) << "a slot is lost";
    EXPECT_EQ(drain<M>(queue), ids);
  }

  /// Kills the victim at its first point, its second, and so on, until it comes through; returns how many there are.
  template <class M>
  long sweep(const Scene<M>& scene) {
    is_joinable_ = scene.options.joinable;
    for (long point = 1;; ++point) {
      SCOPED_TRACE("point " + std::to_string(point));
      new (progress_.get()) Progress();
      int status = 0;
      {
        QueueOf<M> queue(memory_, scene.options);
        for (int i = 0; i < scene.before; ++i) EXPECT_TRUE(queue.try_put(M::of(kFirstOfParent + i)));
        std::vector<std::uint32_t> dead;
        dead.push_back(run_victim(
            point, [&] { scene.act(queue, *progress_); }, status));
        check(queue, scene, dead);
        for (const std::uint32_t slot : dead) free_process_slot(*memory_, slot);
      }
      EXPECT_EQ(memory_->allocated_bytes(), 0u);
      if (WIFEXITED(status) || HasFailure()) return point - 1;
    }
  }

  test::ForkShared<Progress> progress_;
  bool is_joinable_ = false;
};

TEST_F(RingCrashTest, ProducerIsKilledAnywhere) {
  EXPECT_GE(sweep<WordMessage>({{.capacity = 5}, 2, put_three<WordMessage>}), 6);
  EXPECT_GE(sweep<WideMessage>({{.capacity = 5}, 2, put_three<WideMessage>}), 9);
  EXPECT_GE(sweep<LongMessage>({{.capacity = 5}, 2, put_three<LongMessage>}), 15);
  EXPECT_GE(sweep<BlockMessage>({{.capacity = 5}, 2, put_three<BlockMessage>}), 21);
}

TEST_F(RingCrashTest, ConsumerIsKilledAnywhere) {
  for (const OnConsumerDeath policy : {OnConsumerDeath::kReport, OnConsumerDeath::kRedeliver}) {
    const QueueOptions options{.capacity = 4, .on_consumer_death = policy};
    EXPECT_GE(sweep<WordMessage>({options, 4, get_three<WordMessage>}), 6);
    EXPECT_GE(sweep<WideMessage>({options, 4, get_three<WideMessage>}), 9);
    EXPECT_GE(sweep<LongMessage>({options, 4, get_three<LongMessage>}), 15);
    EXPECT_GE(sweep<BlockMessage>({options, 4, get_three<BlockMessage>}), 21);
  }
}

TEST_F(RingCrashTest, WorkerIsKilledAnywhere) {
  for (const OnConsumerDeath policy : {OnConsumerDeath::kReport, OnConsumerDeath::kRedeliver}) {
    const QueueOptions options{.capacity = 4, .on_consumer_death = policy, .joinable = true};
    EXPECT_GE(sweep<WordMessage>({options, 4, do_three_tasks<WordMessage>}), 12);
    EXPECT_GE(sweep<LongMessage>({options, 4, do_three_tasks<LongMessage>}), 15);
    EXPECT_GE(sweep<BlockMessage>({options, 4, do_three_tasks<BlockMessage>}), 21);
  }
}

TEST_F(RingCrashTest, BatchesAreKilledAnywhere) {
  const auto put = [](Queue<int>& queue, Progress& progress) {
    progress.put += static_cast<int>(queue.put_many(std::vector<int>{1, 2, 3}, 0ns));
  };
  EXPECT_GE(sweep<WordMessage>({{.capacity = 5}, 1, put, 3}), 6);
  const auto get = [](Queue<std::vector<int>>& queue, Progress& progress) {
    progress.got += static_cast<int>(queue.get_many(3, 0ns).size());
  };
  EXPECT_GE(sweep<WideMessage>({{.capacity = 4}, 4, get, 3}), 9);
}

TEST_F(RingCrashTest, SleeperIsKilledAnywhere) {
  const auto sleep = [](Queue<int>& queue, Progress& progress) {
    queue.try_get();
    ++progress.got;
    queue.get(1ms);  // Nothing is left.
  };
  // The parent is a lone user of its side, who makes no barriers unless it is asked to.
  EXPECT_GE(sweep<WordMessage>({{.capacity = 4}, 1, sleep}), 7);
}

TEST_F(RingCrashTest, FencesThatADeadSleeperAskedForAreAskedForAgain) {
  Queue<int> queue(memory_, {.capacity = 4});
  queue.put(1);  // From here on this thread is alone on the side of those that put.
  const MessageRing ring(*memory_, detail::encode_value(queue).references.at(0).handle());
  RingBell& bell = ring.header().not_empty;
  const BellFences of_the_dead = BellFences(0).asked_for_again();
  bell.fences.store(of_the_dead.word());
  EXPECT_TRUE(of_the_dead.are_asked_for());
  EXPECT_FALSE(of_the_dead.are_made());

  ring.see_solo_users(bell);
  const BellFences made = of_the_dead.asked_for_again().made();
  EXPECT_EQ(bell.fences.load(), made.word());
  EXPECT_TRUE(made.are_asked_for() && made.are_made());
  ring.see_solo_users(bell);
  EXPECT_EQ(bell.fences.load(), made.word()) << "they are made as long as nobody ends them";

  end_fences(bell);
  EXPECT_FALSE(BellFences(bell.fences.load()).are_asked_for());
  ring.see_solo_users(bell);
  EXPECT_EQ(bell.fences.load(), made.asked_for_again().made().word()) << "each time has a number of its own";
  EXPECT_EQ(queue.get(), 1);
}

TEST_F(RingCrashTest, CloserIsKilledAnywhere) {
  const auto close = [](Queue<int>& queue, Progress& progress) {
    queue.close();
    ++progress.closed;
    queue.try_get();
    ++progress.got;
    try {
      queue.try_get();
    } catch (const Closed&) {
      // That is what it is for.
    }
  };
  EXPECT_GE(sweep<WordMessage>({{.capacity = 4}, 1, close}), 5);
}

TEST_F(RingCrashTest, WhoBringsOrderIsKilledAnywhere) {
  // The first victim dies with all in hand, or at a half-written message; the second while it clears up.
  const auto hold_all = [](Queue<std::vector<int>>& queue) {
    while (queue.try_get()) continue;
  };
  const auto clear_up = [this](Queue<std::vector<int>>& queue, Progress&) {
    MessageRing(*memory_, detail::encode_value(queue).references.at(0).handle()).sweep(0, ~0u);
  };
  for (const OnConsumerDeath policy : {OnConsumerDeath::kReport, OnConsumerDeath::kRedeliver}) {
    const QueueOptions options{.capacity = 3, .on_consumer_death = policy, .joinable = true};
    is_joinable_ = true;
    long point = 1;
    for (bool has_ended = false; !has_ended; ++point) {
      SCOPED_TRACE("point " + std::to_string(point));
      int status = 0;
      {
        Queue<std::vector<int>> queue(memory_, options);
        for (int i = 0; i < 3; ++i) queue.put(LongMessage::of(kFirstOfParent + i));
        const std::uint32_t first = run_victim(
            0, [&] { hold_all(queue); }, status);
        mark_dead(first);
        const std::uint32_t second = run_victim(
            point, [&] { clear_up(queue, *progress_); }, status);
        mark_dead(second);
        MessageRing(*memory_, detail::encode_value(queue).references.at(0).handle()).sweep(0, ~0u);
        const std::size_t again = drain<LongMessage>(queue).size();
        EXPECT_EQ(again, policy == OnConsumerDeath::kRedeliver ? 3u : 0u);
        EXPECT_EQ(queue.lost(), policy == OnConsumerDeath::kReport ? 3u : 0u);
        EXPECT_EQ(queue.lost_messages().size(), queue.lost());
        new (progress_.get()) Progress();
        check_usable<LongMessage>(queue, {options, 0, {}, 1});
        for (const std::uint32_t slot : {first, second}) free_process_slot(*memory_, slot);
      }
      EXPECT_EQ(memory_->allocated_bytes(), 0u);
      has_ended = WIFEXITED(status) || HasFailure();
    }
    EXPECT_GE(point, 7);
  }
}

TEST_F(RingCrashTest, SurvivorsGoOnWhileOthersDie) {
  {
    Queue<int> words(memory_, {.capacity = 8});
    Queue<std::vector<int>> rows(memory_, {.capacity = 4});
    std::mt19937 random(1);
    for (int round = 0; round < 30 && !HasFailure(); ++round) {
      const std::uint32_t slot = reserve_process_slots(*memory_, 1).front();
      memory_->retain_holds_for(slot);
      const pid_t pid = fork();
      if (pid == 0) {
        enter_process_slot(*memory_, slot);
        for (int id = 0;; ++id) {
          words.put(id);
          rows.put(id % 2 == 0 ? LongMessage::of(id) : WideMessage::of(id));
        }
      }
      int next_word = 0;
      int next_row = 0;
      const auto take = [&](std::chrono::nanoseconds patience) {
        const auto word = words.get(patience);
        if (word) {
          EXPECT_EQ(*word, next_word++);
        }
        const auto row = rows.get(patience);
        if (row) {
          EXPECT_EQ(next_row % 2 == 0 ? LongMessage::id(*row) : WideMessage::id(*row), next_row);
          ++next_row;
        }
        return word || row;
      };
      for (unsigned left = random() % 60; left > 0; --left) ASSERT_TRUE(take(20s));
      kill(pid, SIGKILL);
      EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
      mark_dead(slot);
      while (take(0ns)) continue;
      EXPECT_LE(next_word - next_row, 2);
      free_process_slot(*memory_, slot);
    }
  }
  EXPECT_EQ(memory_->allocated_bytes(), 0u);
}

}  // namespace
}  // namespace retinue
