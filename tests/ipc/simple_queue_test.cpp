// Also kills a process at each point of everything that a simple queue does; the survivors go on. Its sources are
// compiled here once more, with these points in them.
#define RETINUE_CRASH_POINTS
#include "ipc/queue/message_chain.cpp"   // NOLINT(bugprone-suspicious-include)
#include "ipc/queue/simple_channel.cpp"  // NOLINT(bugprone-suspicious-include)

#include <gtest/gtest.h>

#include <algorithm>
#include <cereal/types/map.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <thread>

#include "ipc/crash_fixture.h"
#include "retinue/ipc/queue.h"
#include "retinue/ipc/simple_queue.h"
#include "support/ranks.h"

namespace retinue {

namespace {

using namespace std::chrono_literals;

using test::kPatience;

using SimpleQueueTest = CrashTest;

TEST_F(SimpleQueueTest, HoldsWhatHasRoomInJobMemory) {
  auto queue = SimpleQueue<int>::create();
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.get(0ns).has_value());
  EXPECT_FALSE(queue.get(1ms).has_value());
  constexpr int kMany = 300'000;
  for (int i = 0; i < kMany; ++i) queue.put(i);
  EXPECT_FALSE(queue.empty());
  EXPECT_GT(memory_->allocated_bytes(), std::size_t{kMany} * 8);
  for (int i = 0; i < kMany; ++i) ASSERT_EQ(queue.get(0ns), i);
  EXPECT_TRUE(queue.empty());
  EXPECT_LE(memory_->allocated_bytes(), std::size_t{2} << 20) << "what was got keeps its memory";
}

TEST_F(SimpleQueueTest, UsesNoMoreMemoryForLastingTraffic) {
  auto queue = SimpleQueue<int>::create();
  queue.put(0);
  for (int i = 1; i < 100'000; ++i) {
    queue.put(i);
    ASSERT_EQ(queue.get(0ns), i - 1);
  }
  EXPECT_EQ(queue.get(), 99'999);
  EXPECT_LE(memory_->allocated_bytes(), std::size_t{40} << 10);
}

TEST_F(SimpleQueueTest, CarriesManyTypes) {
  auto maps = SimpleQueue<std::map<std::string, std::vector<int>>>::create();
  const std::map<std::string, std::vector<int>> map{{"a", {1, 2}}, {"b", {}}};
  maps.put(map);
  EXPECT_EQ(maps.get(), map);
  auto rows = SimpleQueue<std::vector<float>>::create();
  for (const std::size_t count : {0u, 1u, 64u, 65u, 1024u, 1025u, 100'000u}) {
    std::vector<float> row(count);
    for (std::size_t i = 0; i < count; ++i) row[i] = static_cast<float>(i);
    rows.put(row);
    EXPECT_EQ(rows.get(), row);
  }
  const float row[] = {1, 2, 3};
  rows.put(std::span(row));
  EXPECT_EQ(rows.get(), std::vector<float>({1, 2, 3}));
  auto queues = SimpleQueue<SimpleQueue<bool>>::create();
  {
    auto inner = SimpleQueue<bool>::create();
    inner.put(true);
    queues.put(inner);
  }
  SimpleQueue<bool> same = queues.get();
  EXPECT_TRUE(same.get());
}

TEST_F(SimpleQueueTest, RefusesWhatCannotBe) {
  SimpleQueue<int> none;
  EXPECT_FALSE(none);
  EXPECT_THROW(none.put(1), UsageError);
  EXPECT_THROW(none.get(0ns), UsageError);
  const auto queue = SimpleQueue<int>::create();
  const detail::Encoded encoded = detail::encode_value(queue);
  SimpleQueue<float> other;
  EXPECT_THROW(detail::decode_value(encoded.bytes, other), UsageError);
  Queue<int> ring;
  EXPECT_THROW(detail::decode_value(encoded.bytes, ring), UsageError);
}

TEST_F(SimpleQueueTest, SaysWhenJobMemoryIsFull) {
  auto queue = SimpleQueue<std::vector<char>>::create();
  const std::vector<char> large(std::size_t{16} << 20);
  int count = 0;
  EXPECT_THROW(for (;; ++count) queue.put(large), SharedMemoryExhausted);
  EXPECT_GE(count, 8);
  EXPECT_EQ(queue.get(0ns), large);
  queue.put(large);  // There is space again.
  for (int i = 0; i < count; ++i) EXPECT_TRUE(queue.get(0ns).has_value());
  EXPECT_TRUE(queue.empty());
}

TEST_F(SimpleQueueTest, DoesAsASequentialQueueDoes) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    std::mt19937 random(seed);
    auto queue = SimpleQueue<std::string>::create();
    std::deque<std::string> model;
    for (int step = 0; step < 4000; ++step) {
      // Now more and more, now less and less.
      if (random() % 8 < (step / 1000 % 2 == 0 ? 5u : 3u)) {
        const std::string text(random() % (random() % 20 == 0 ? 9000 : 600), 'a');
        queue.put(text);
        model.push_back(text);
      } else {
        const std::optional<std::string> text = queue.get(0ns);
        ASSERT_EQ(text.has_value(), !model.empty());
        if (!text) continue;
        ASSERT_EQ(*text, model.front());
        model.pop_front();
      }
      ASSERT_EQ(queue.empty(), model.empty());
    }
  }
}

/// Ranks 0 and 1 produce, the others consume; each producer's messages come in order, and each once.
void serve(int rank, SimpleQueue<std::vector<std::uint64_t>> queue, SimpleQueue<std::uint64_t> counts) {
  constexpr int kProducers = 2;
  constexpr int kConsumers = 2;
  const std::uint64_t count = test::is_sanitized() ? 1'000 : 5'000;
  if (rank < kProducers) {
    for (std::uint64_t i = 1; i <= count; ++i)
      queue.put(std::vector<std::uint64_t>(i % 50 == 0 ? 1000 : 3, static_cast<std::uint64_t>(rank) << 32 | i));
    for (int i = 0; i < kConsumers; ++i) queue.put({});
    return;
  }
  std::uint64_t last[kProducers] = {};
  std::uint64_t got = 0;
  for (int ended = 0; ended < kProducers;) {
    const auto message = queue.get(kPatience);
    ASSERT_TRUE(message.has_value());
    if (message->empty()) {
      ++ended;
      continue;
    }
    const std::uint64_t value = message->front();
    EXPECT_EQ(*message, std::vector<std::uint64_t>(value % (1ull << 32) % 50 == 0 ? 1000 : 3, value));
    EXPECT_GT(value & 0xffffffffu, last[value >> 32]);
    last[value >> 32] = value & 0xffffffffu;
    ++got;
  }
  counts.put(got);
  if (rank != kProducers) return;
  std::uint64_t total = 0;
  for (int i = 0; i < kConsumers; ++i) total += counts.get(kPatience).value_or(0);
  EXPECT_EQ(total, count * kProducers);
}

TEST_F(SimpleQueueTest, ServesManyProcesses) {
  auto queue = SimpleQueue<std::vector<std::uint64_t>>::create();
  auto counts = SimpleQueue<std::uint64_t>::create();
  test::run_ranks_in(memory_, 4, [&](const JobGroup& group) { serve(group.rank, queue, counts); }, {.timeout = 60s});
  EXPECT_TRUE(queue.empty());
}

TEST_F(SimpleQueueTest, ServesManyThreads) {
  auto queue = SimpleQueue<std::vector<std::uint64_t>>::create();
  auto counts = SimpleQueue<std::uint64_t>::create();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&, i] { serve(i, queue, counts); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(queue.empty());
}

class SimpleQueueCrashTest : public CrashTest {
 protected:
  using Messages = SimpleQueue<std::vector<int>>;
  static constexpr int kFirstOfParent = 100'000;
  static constexpr int kLast = 200'000;

  static std::vector<int> message(int id, std::size_t count) { return std::vector<int>(count, id); }

  /// The victim acts after the parent put `before` messages of `count` numbers. It is killed at its first point, its
  /// second, and so on, until it comes through; returns how many there are.
  long sweep(std::size_t count, int before, const std::function<void(Messages&)>& act) {
    for (long point = 1;; ++point) {
      SCOPED_TRACE("point " + std::to_string(point));
      new (progress_.get()) Progress();
      bool came_through = false;
      {
        Messages queue = Messages::create();
        for (int i = 0; i < before; ++i) queue.put(message(kFirstOfParent + i, count));
        came_through = run_victim(point, [&] { act(queue); });
        check(queue, before);
      }
      EXPECT_EQ(memory_->allocated_bytes(), 0u);
      if (came_through || HasFailure()) return point - 1;
    }
  }

  /// The parent's messages, without those that were got, then the victim's, then those that are put now.
  void check(Messages& queue, int before) {
    queue.put(message(kLast, 3));
    EXPECT_FALSE(queue.empty());
    std::vector<int> ids;
    while (const auto got = queue.get(0ns)) {
      EXPECT_EQ(*got, message(got->front(), got->size()));
      ids.push_back(got->front());
    }
    EXPECT_TRUE(queue.empty());
    const auto of_parent =
        static_cast<int>(std::count_if(ids.begin(), ids.end(), [](int id) { return id >= kFirstOfParent; })) - 1;
    const int of_victim = static_cast<int>(ids.size()) - of_parent - 1;
    std::vector<int> expected;
    for (int i = before - of_parent; i < before; ++i) expected.push_back(kFirstOfParent + i);
    for (int i = 0; i < of_victim; ++i) expected.push_back(i);
    expected.push_back(kLast);
    EXPECT_EQ(ids, expected);
    EXPECT_GE(of_victim, progress_->put);
    EXPECT_LE(of_victim, progress_->put + 1);
    EXPECT_GE(before - of_parent, progress_->got);
    EXPECT_LE(before - of_parent, progress_->got + 1);
  }
};

constexpr std::size_t kCounts[] = {3, 1000, 2000};  // Many in a segment; four in one; in a block of its own.

TEST_F(SimpleQueueCrashTest, ProducerIsKilledAnywhere) {
  for (const std::size_t count : kCounts) {
    const auto put = [&](Messages& queue) {
      for (int i = 0; i < 3; ++i) {
        queue.put(message(i, count));
        ++progress_->put;
      }
    };
    EXPECT_GE(sweep(count, 0, put), 15);
    EXPECT_GE(sweep(count, 3, put), count == 3 ? 9 : 15);
  }
}

TEST_F(SimpleQueueCrashTest, ConsumerIsKilledAnywhere) {
  for (const std::size_t count : kCounts) {
    const auto get = [&](Messages& queue) {
      for (int i = 0; i < 6; ++i) {
        queue.get(0ns);
        ++progress_->got;
      }
    };
    EXPECT_GE(sweep(count, 9, get), 18);
  }
}

TEST_F(SimpleQueueCrashTest, WhoUsesAnEmptiedSegmentAgainIsKilledAnywhere) {
  const auto act = [&](Messages& queue) {
    for (int i = 0; i < 4; ++i) queue.get(0ns);
    progress_->got += 4;
    queue.put(message(0, 1000));
    ++progress_->put;
  };
  new (progress_.get()) Progress();
  for (long point = 1;; ++point) {
    SCOPED_TRACE("point " + std::to_string(point));
    Messages queue = Messages::create();
    for (int i = 0; i < 4; ++i) queue.put(message(kFirstOfParent + i, 1000));
    const bool came_through = run_victim(point, [&] { act(queue); });
    std::vector<int> ids;
    while (const auto got = queue.get(0ns)) ids.push_back(got->front());
    EXPECT_LE(ids.size(), 4u) << "what was got came again";
    EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end())) << "out of order, or what was got came again";
    if (came_through || HasFailure()) break;
  }
}

TEST_F(SimpleQueueCrashTest, WhoBringsOrderIsKilledAnywhere) {
  for (const std::size_t count : {1000u, 2000u}) {
    long points = 0;
    for (long first = 1; first < 40; ++first) {
      for (long second = 1;; ++second) {
        SCOPED_TRACE("points " + std::to_string(first) + " and " + std::to_string(second));
        new (progress_.get()) Progress();
        Messages queue = Messages::create();
        for (int i = 0; i < 4; ++i) queue.put(message(kFirstOfParent + i, count));
        run_victim(first, [&] {
          queue.get(0ns);
          ++progress_->got;
          queue.put(message(0, count));
          ++progress_->put;
        });
        const bool came_through = run_victim(second, [&] { queue.empty(); });
        check(queue, 4);
        points = std::max(points, second - 1);
        if (came_through || HasFailure()) break;
      }
    }
    EXPECT_GE(points, 3);
  }
}

TEST_F(SimpleQueueCrashTest, OneThatStandsStillInItKeepsNobodyPastItsTime) {
  Messages queue = Messages::create();
  queue.put(message(1, 3));
  const Victim victim = start_victim(1, [&] {
    stops = true;
    queue.get(0ns);
  });
  int status = 0;
  ASSERT_EQ(waitpid(victim.pid, &status, WUNTRACED), victim.pid);
  ASSERT_TRUE(WIFSTOPPED(status));
  EXPECT_FALSE(queue.get(0ns).has_value());
  EXPECT_FALSE(queue.get(50ms).has_value());
  memory_->set_lock_patience(10ms);
  EXPECT_THROW(queue.put(message(2, 3)), TimeoutError);
  kill(victim.pid, SIGKILL);
  bury(victim);
  EXPECT_EQ(queue.get(kPatience), message(1, 3));
}

TEST_F(SimpleQueueCrashTest, SurvivorsGoOnWhileOthersDie) {
  Messages queue = Messages::create();
  std::mt19937 random(1);
  for (int round = 0; round < 20 && !HasFailure(); ++round) {
    const Victim victim = start_victim(0, [&] {
      for (int id = 0; id < kFirstOfParent; ++id) queue.put(message(id, kCounts[id % 3]));
    });
    int next = 0;
    const auto take = [&](std::chrono::nanoseconds patience) {
      const auto got = queue.get(patience);
      if (got) {
        EXPECT_EQ(*got, message(next, kCounts[next % 3]));
        ++next;
      }
      return got.has_value();
    };
    for (unsigned left = random() % 60; left > 0; --left) ASSERT_TRUE(take(kPatience));
    kill(victim.pid, SIGKILL);
    bury(victim);
    while (take(0ns)) continue;
    EXPECT_TRUE(queue.empty());
  }
}

}  // namespace
}  // namespace retinue
