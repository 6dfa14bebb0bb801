// Queues in poll(), beside other descriptors. Also kills a process at each point of what it does with a queue that
// somebody polls; the sources are compiled here once more, with these points in them.
#define RETINUE_CRASH_POINTS
#include "ipc/memory/poller.cpp"          // NOLINT(bugprone-suspicious-include)
#include "ipc/queue/channel_poll.cpp"     // NOLINT(bugprone-suspicious-include)
#include "ipc/queue/message_channel.cpp"  // NOLINT(bugprone-suspicious-include)
#include "ipc/ring/message_ring.cpp"      // NOLINT(bugprone-suspicious-include)
#include "ipc/ring/ring_slots.cpp"        // NOLINT(bugprone-suspicious-include)
#include "ipc/ring/ring_user.cpp"         // NOLINT(bugprone-suspicious-include)

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "ipc/poll_fixture.h"
#include "retinue/ipc/queue.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;

using test::kPatience;

template <class T>
T value_of(int number);
template <>
int value_of(int number) {
  return number;
}
template <>
std::string value_of(int number) {
  return std::to_string(number);
}

class QueuePollTest : public PollTest {
 protected:
  template <class T>
  void check_descriptor(const QueueOptions& options) {
    Queue<T> queue(options);
    const int fd = queue.descriptor();
    EXPECT_EQ(queue.descriptor(), fd);
    EXPECT_FALSE(becomes_readable(fd, 0ms));
    for (int round = 0; round < 5; ++round) {
      queue.put(value_of<T>(1));
      queue.put(value_of<T>(2));
      EXPECT_TRUE(becomes_readable(fd, 0ms));
      EXPECT_EQ(queue.get(), value_of<T>(1));
      EXPECT_TRUE(becomes_readable(fd, 0ms)) << "there is another one";
      EXPECT_EQ(queue.try_get(), value_of<T>(2));
      EXPECT_FALSE(becomes_readable(fd, 0ms));
      EXPECT_EQ(queue.put_many(std::vector<T>(2, value_of<T>(3))), 2u);
      EXPECT_TRUE(becomes_readable(fd, 0ms));
      EXPECT_EQ(queue.get_many(5).size(), 2u);
      EXPECT_FALSE(queue.try_get().has_value());
      EXPECT_FALSE(becomes_readable(fd, 0ms));
      while (options.joinable && !queue.join(0ns)) queue.task_done();
    }
    queue.close();
    EXPECT_TRUE(becomes_readable(fd, 0ms));
    EXPECT_THROW(queue.get(), Closed);
    EXPECT_TRUE(becomes_readable(fd, 0ms));
  }

  /// Producers in processes, and this one as the only consumer, which sleeps in poll() alone.
  template <class T>
  void serve(int producers) {
    Queue<T> queue({.capacity = 8});
    const int fd = queue.descriptor();
    constexpr int kEach = 2000;
    std::vector<Victim> all;
    for (int p = 0; p < producers; ++p)
      all.push_back(start_victim(0, [&] {
        for (int i = 0; i < kEach; ++i) queue.put(value_of<T>(i));
      }));
    int got = 0;
    while (got < producers * kEach) {
      ASSERT_TRUE(becomes_readable(fd, kPatience)) << "after " << got;
      while (queue.try_get()) ++got;
    }
    for (const Victim& victim : all) EXPECT_TRUE(bury(victim));
    EXPECT_EQ(got, producers * kEach);
  }

  template <class T>
  void kill_producer_anywhere(long at_least) {
    for (long point = 1;; ++point) {
      SCOPED_TRACE("point " + std::to_string(point));
      new (progress_.get()) Progress();
      Queue<T> queue({.capacity = 4});
      const int fd = queue.descriptor();
      const bool came_through = bury(start_victim(point, [this, &queue] {
        for (int i = 0; i < 2; ++i) {
          queue.put(value_of<T>(i));
          ++progress_->put;
        }
      }));
      int got = 0;
      while (becomes_readable(fd, 0ms))
        if (queue.try_get()) ++got;
      EXPECT_GE(got, progress_->put);
      EXPECT_LE(got, progress_->put + 1);
      EXPECT_FALSE(queue.get(50ms).has_value()) << "there was a message, but the descriptor did not tell";
      queue.put(value_of<T>(7));
      EXPECT_TRUE(becomes_readable(fd, 0ms));
      if (!came_through && !HasFailure()) continue;
      EXPECT_GE(point, at_least);
      break;
    }
  }
};

TEST_F(QueuePollTest, IsReadableWhenSomethingIsThere) {
  check_descriptor<int>({.capacity = 4});
  check_descriptor<int>({.capacity = 4, .joinable = true});
  check_descriptor<std::string>({.capacity = 4});
  check_descriptor<std::string>({.capacity = 4, .joinable = true});
}

TEST_F(QueuePollTest, IsReadableForWhatIsThereAlready) {
  Queue<int> queue({.capacity = 4});
  queue.put(1);
  EXPECT_TRUE(becomes_readable(queue.descriptor(), 0ms));
  Queue<int> closed({.capacity = 4});
  closed.close();
  EXPECT_TRUE(becomes_readable(closed.descriptor(), 0ms));
  Queue<int> none;
  EXPECT_THROW(none.descriptor(), UsageError);
}

TEST_F(QueuePollTest, WakesWhoPollsFromAnotherProcess) {
  for (const int producers : {1, 3}) {
    serve<int>(producers);
    serve<std::string>(producers);
  }
}

/// One polls, another one sleeps in get(): both are woken until all is there.
TEST_F(QueuePollTest, WakesWhoPollsBesideWhoSleeps) {
  Queue<int> queue({.capacity = 4});
  const int fd = queue.descriptor();
  constexpr int kCount = 3000;
  std::atomic<int> got{0};
  std::thread sleeper([&] {
    try {
      for (;;) {
        queue.get();
        ++got;
      }
    } catch (const Closed&) {
      // All are there.
    }
  });
  const Victim producer = start_victim(0, [&] {
    for (int i = 0; i < kCount; ++i) queue.put(i);
    queue.close();
  });
  bool is_closed = false;
  while (!is_closed && becomes_readable(fd, kPatience)) {
    try {
      while (queue.try_get()) ++got;
    } catch (const Closed&) {
      is_closed = true;
    }
  }
  EXPECT_TRUE(is_closed);
  sleeper.join();
  EXPECT_TRUE(bury(producer));
  EXPECT_EQ(got, kCount);
}

TEST_F(QueuePollTest, IsReadableWhenAMessageComesAgain) {
  for (const bool holds_two : {false, true}) {
    Queue<int> queue({.capacity = 4, .on_consumer_death = OnConsumerDeath::kRedeliver, .joinable = true});
    const int fd = queue.descriptor();
    queue.put(7);
    if (holds_two) queue.put(8);
    const Victim victim = start_victim(0, [&] {
      while (queue.try_get()) continue;
      kill(getpid(), SIGKILL);
    });
    bury(victim);
    ASSERT_TRUE(becomes_readable(fd, kPatience));
    std::vector<int> again;
    while (again.size() < (holds_two ? 2u : 1u)) {
      ASSERT_TRUE(becomes_readable(fd, kPatience));
      if (const auto value = queue.try_get()) again.push_back(*value);
    }
    EXPECT_FALSE(queue.try_get());
    EXPECT_FALSE(becomes_readable(fd, 0ms));
    for (std::size_t i = 0; i < again.size(); ++i) queue.task_done();
  }
}

/// It was not waiting when the other one died, and must not sleep then.
TEST_F(QueuePollTest, LooksForWhatTheDeadHadBeforeItWaits) {
  Queue<int> queue({.capacity = 64, .on_consumer_death = OnConsumerDeath::kRedeliver, .joinable = true});
  const int fd = queue.descriptor();
  queue.put(1);
  queue.put(2);
  EXPECT_EQ(queue.get(), 1);
  ASSERT_TRUE(becomes_readable(fd, 0ms));
  const Victim victim = start_victim(0, [&] {
    queue.get();
    kill(getpid(), SIGKILL);
  });
  bury(victim);
  queue.task_done();
  const auto value = queue.try_get();
  if (!value) {
    ASSERT_TRUE(becomes_readable(fd, kPatience));
    EXPECT_EQ(queue.try_get(), 2);
  }
  queue.task_done();
}

TEST_F(QueuePollTest, IsReadableForWhatTheDeadHadBeforeItWasMade) {
  Queue<int> queue({.capacity = 4, .on_consumer_death = OnConsumerDeath::kRedeliver, .joinable = true});
  queue.put(7);
  const Victim victim = start_victim(0, [&] {
    queue.get();
    kill(getpid(), SIGKILL);
  });
  bury(victim);
  ASSERT_TRUE(becomes_readable(queue.descriptor(), kPatience));
  EXPECT_EQ(queue.try_get(), 7);
  queue.task_done();
}

/// A producer finds what the dead consumer had, and tells.
TEST_F(QueuePollTest, IsReadableForWhatAProducerFound) {
  Queue<int> queue({.capacity = 1, .on_consumer_death = OnConsumerDeath::kRedeliver, .joinable = true});
  const int fd = queue.descriptor();
  queue.put(7);
  const Victim victim = start_victim(0, [&] {
    queue.get();
    kill(getpid(), SIGKILL);
  });
  EXPECT_FALSE(CrashTest::bury(victim));  // The guardian has not rung yet.
  EXPECT_FALSE(queue.try_put(8));
  ASSERT_TRUE(becomes_readable(fd, 0ms));
  EXPECT_EQ(queue.try_get(), 7);
  queue.task_done();
}

TEST_F(QueuePollTest, EachOfSomeProcessesHasOne) {
  Queue<int> queue({.capacity = 4});
  std::vector<Queue<int>> others;
  for (std::size_t i = 0; i < RingHeader::kMostPollers; ++i) {
    detail::decode_value(detail::encode_value(queue).bytes, others.emplace_back());  // As another process gets it.
    others.back().descriptor();
  }
  EXPECT_THROW(queue.descriptor(), UsageError);
  others.pop_back();
  const int fd = queue.descriptor();
  queue.put(1);
  EXPECT_TRUE(becomes_readable(fd, 0ms));
  for (Queue<int>& other : others) EXPECT_TRUE(becomes_readable(other.descriptor(), 0ms));
  EXPECT_EQ(others.front().try_get(), 1);
  EXPECT_FALSE(queue.try_get());
  EXPECT_FALSE(becomes_readable(fd, 0ms));
}

TEST_F(QueuePollTest, ProducerIsKilledAnywhereWhileAnotherPolls) {
  kill_producer_anywhere<int>(8);
  kill_producer_anywhere<std::string>(8);
}

}  // namespace
}  // namespace retinue
