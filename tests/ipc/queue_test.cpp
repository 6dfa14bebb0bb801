#include "retinue/ipc/queue.h"

#include <gtest/gtest.h>

#include <cereal/types/map.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ipc/memory/job_layout.h"
#include "support/job_test.h"
#include "support/ranks.h"
#include "support/usage_error.h"

using namespace std::chrono_literals;
using retinue::Queue;
using retinue::QueueOptions;
using retinue::test::usage_error_of;

namespace {

using retinue::test::kPatience;

class QueueTest : public retinue::test::JobTest {};

TEST_F(QueueTest, KeepsOrderAndCapacity) {
  Queue<int> queue({.capacity = 3});
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.try_get().has_value());
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue.try_put(10 * round + i));
    EXPECT_TRUE(queue.full());
    EXPECT_FALSE(queue.try_put(99));
    EXPECT_FALSE(queue.put(99, 1ms));
    EXPECT_EQ(queue.size(), 3u);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(queue.get(kPatience), 10 * round + i);
  }
}

TEST_F(QueueTest, HoldsOneMessage) {
  Queue<std::string> queue({.capacity = 1});
  for (int i = 0; i < 5; ++i) {
    queue.put(std::to_string(i));
    EXPECT_FALSE(queue.try_put("more"));
    EXPECT_EQ(queue.get(), std::to_string(i));
  }
}

struct Sample {
  int id;
  double values[5];
};

TEST_F(QueueTest, CarriesManyTypes) {
  Queue<Sample> samples({.capacity = 2});
  samples.put({7, {1, 2, 3, 4, 5}});
  EXPECT_EQ(samples.get().values[4], 5);
  Queue<bool> bools({.capacity = 2});
  bools.put(true);
  EXPECT_TRUE(bools.get());
  Queue<std::map<std::string, std::vector<int>>> maps({.capacity = 2});
  const std::map<std::string, std::vector<int>> map{{"a", {1, 2}}, {"b", {}}};
  maps.put(map);
  EXPECT_EQ(maps.get(), map);
  Queue<std::vector<float>> rows({.capacity = 2, .message_bytes = 64});
  for (const std::size_t count : {0u, 1u, 16u, 17u, 100'000u}) {
    std::vector<float> row(count);
    for (std::size_t i = 0; i < count; ++i) row[i] = static_cast<float>(i);
    rows.put(row);
    EXPECT_EQ(rows.get(), row);
  }
}

TEST_F(QueueTest, ClosesForPutsAndThenForGets) {
  Queue<int> queue({.capacity = 4});
  queue.put(1);
  queue.close();
  EXPECT_THROW(queue.put(2), retinue::Closed);
  EXPECT_EQ(queue.get(), 1);
  EXPECT_THROW(queue.get(), retinue::Closed);
  EXPECT_THROW(queue.get(), retinue::Closed);
  Queue<std::string> full({.capacity = 1});
  full.put("a");
  std::thread waiting([&] { EXPECT_THROW(full.put("b"), retinue::Closed); });
  full.close();
  waiting.join();
  EXPECT_EQ(full.get_many(10), std::vector<std::string>{"a"});
  EXPECT_THROW(full.get_many(10), retinue::Closed);
}

/// One word more than are put at once.
TEST_F(QueueTest, PutManySaysHowManyWerePutBeforeTheEnd) {
  Queue<int> queue({.capacity = 64});
  std::size_t count = 0;
  std::thread waiting([&] { count = queue.put_many(std::vector<int>(65, 1), kPatience); });
  while (!queue.full()) std::this_thread::yield();
  queue.close();
  waiting.join();
  EXPECT_EQ(count, 64u);
  EXPECT_THROW(queue.put_many(std::vector<int>(1, 1)), retinue::Closed);
}

TEST_F(QueueTest, CountsTasks) {
  Queue<int> queue({.capacity = 2, .joinable = true});
  queue.put(1);
  queue.put(2);
  EXPECT_EQ(queue.get(), 1);
  EXPECT_FALSE(queue.try_put(3));  // It is still in hand.
  queue.task_done();
  EXPECT_TRUE(queue.try_put(3));
  EXPECT_FALSE(queue.join(1ms));
  std::thread worker([&] {
    for (int i = 2; i <= 3; ++i) {
      EXPECT_EQ(queue.get(), i);
      queue.task_done();
    }
  });
  EXPECT_TRUE(queue.join(kPatience));
  worker.join();
  EXPECT_THROW(queue.task_done(), retinue::UsageError);
  Queue<int> plain({.capacity = 2});
  EXPECT_THROW(plain.join(), retinue::UsageError);
}

TEST_F(QueueTest, RefusesWhatCannotBe) {
  EXPECT_THROW(Queue<int>({.capacity = 0}), retinue::UsageError);
  EXPECT_NE(usage_error_of([] { Queue<int>({.capacity = std::size_t{1} << 40}); }).find("capacity 1099511627776:"),
            std::string::npos);
  Queue<int> none;
  EXPECT_FALSE(none);
  EXPECT_THROW(none.put(1), retinue::UsageError);
}

TEST_F(QueueTest, TravelsAsTheSameQueueOfItsType) {
  Queue<Queue<int>> queues({.capacity = 2});
  {
    Queue<int> inner({.capacity = 2});
    inner.put(42);
    queues.put(inner);
  }
  Queue<int> same = queues.get();
  EXPECT_EQ(same.get(kPatience), 42);
  const retinue::detail::Encoded encoded = retinue::detail::encode_value(same);
  Queue<float> other;
  EXPECT_THROW(retinue::detail::decode_value(encoded.bytes, other), retinue::UsageError);
}

TEST_F(QueueTest, FreesWhatNobodyGot) {
  Queue<std::vector<char>> queue({.capacity = 8, .message_bytes = 32});
  for (int i = 0; i < 5; ++i) queue.put(std::vector<char>(10'000));
  EXPECT_GT(memory_->allocated_bytes(), 50'000u);
}

/// Does what a random choice says to the queue and to a model of it.
template <class T>
void compare_with_model(const std::function<T(std::uint32_t)>& make, QueueOptions options, unsigned seed) {
  std::mt19937 random(seed);
  Queue<T> queue(options);
  std::deque<T> model;
  std::deque<T> in_hand;
  for (std::uint32_t step = 0; step < 3000; ++step) {
    const std::size_t held = model.size() + in_hand.size();
    switch (random() % 5) {
      case 0: {
        const T value = make(random());
        ASSERT_EQ(queue.try_put(value), held < options.capacity);
        if (held < options.capacity) model.push_back(value);
        break;
      }
      case 1: {
        std::vector<T> values(random() % 4, make(random()));
        const std::size_t room = std::min(values.size(), options.capacity - held);
        ASSERT_EQ(queue.put_many(values, 0ns), room);
        model.insert(model.end(), values.begin(), values.begin() + static_cast<std::ptrdiff_t>(room));
        break;
      }
      case 2: {
        const std::optional<T> value = queue.try_get();
        ASSERT_EQ(value.has_value(), !model.empty());
        if (!value) break;
        ASSERT_EQ(*value, model.front());
        if (options.joinable) in_hand.push_back(*value);
        model.pop_front();
        break;
      }
      case 3:
        for (const T& value : queue.get_many(random() % 4, 0ns)) {
          ASSERT_EQ(value, model.front());
          if (options.joinable) in_hand.push_back(value);
          model.pop_front();
        }
        break;
      default:
        if (in_hand.empty()) break;
        queue.task_done();
        in_hand.pop_front();
    }
    ASSERT_EQ(queue.size(), model.size());
    if (options.joinable) {
      ASSERT_EQ(queue.join(0ns), model.empty() && in_hand.empty());
    }
  }
}

TEST_F(QueueTest, DoesAsASequentialQueueDoes) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    const QueueOptions options{.capacity = 1 + seed * 3, .joinable = seed % 2 == 1};
    compare_with_model<std::uint32_t>([](std::uint32_t value) { return value; }, options, seed);
    compare_with_model<std::string>([](std::uint32_t value) { return std::string(value % 600, 'a'); }, options, seed);
  }
}

/// `producer(p, queue)` and `consumer(c, queue)` in threads or in processes.
struct Crew {
  int producers;
  int consumers;
  QueueOptions options;
};

constexpr std::uint64_t kEnd = ~std::uint64_t{0};

template <class T>
T message(std::uint64_t producer, std::uint64_t number) {
  if constexpr (std::is_same_v<T, std::uint64_t>) {
    return producer << 32 | number;
  } else {
    // Now and then one that needs a block.
    T row(number % 50 == 0 ? 200 : 3, producer << 32 | number);
    return row;
  }
}
template <class T>
std::uint64_t content(const T& message) {
  if constexpr (std::is_same_v<T, std::uint64_t>) {
    return message;
  } else {
    for (const auto& value : message) EXPECT_EQ(value, message.front());
    return message.front();
  }
}

template <class T>
void produce(Queue<T> queue, std::uint64_t producer, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i % 7 == 0 && i + 5 < count) {
      std::vector<T> several;
      for (int k = 0; k < 5; ++k) several.push_back(message<T>(producer, i + static_cast<std::uint64_t>(k)));
      ASSERT_EQ(queue.put_many(several, kPatience), several.size());
      i += 4;
    } else {
      ASSERT_TRUE(queue.put(message<T>(producer, i), kPatience));
    }
  }
}

/// Until kEnd; each producer's messages must come in order. Returns how many came from each.
template <class T>
std::vector<std::uint64_t> consume(Queue<T> queue, int producers) {
  std::vector<std::uint64_t> next(static_cast<std::size_t>(producers), 0);
  std::vector<std::uint64_t> counts(next.size(), 0);
  for (;;) {
    const std::optional<T> got = queue.get(kPatience);
    if (!got) throw std::runtime_error("nothing came");
    const std::uint64_t value = content(*got);
    if (value == kEnd) return counts;
    const std::uint64_t producer = value >> 32;
    EXPECT_GE(value & 0xffffffffu, next.at(producer));
    next[producer] = (value & 0xffffffffu) + 1;
    ++counts[producer];
  }
}

template <class T>
T end_message() {
  if constexpr (std::is_same_v<T, std::uint64_t>) {
    return kEnd;
  } else {
    return {kEnd};
  }
}

/// Rank 0 to producers-1 produce, the others consume; every message must arrive once.
template <class T>
void run_crew(const std::function<void(int, const std::function<void(int)>&)>& in_parallel, const Crew& crew) {
  const std::uint64_t count = retinue::test::is_sanitized() ? 1'000 : 5'000;
  Queue<T> queue(crew.options);
  Queue<std::uint64_t> counts({.capacity = 256});
  in_parallel(crew.producers + crew.consumers, [&](int rank) {
    if (rank < crew.producers) {
      produce<T>(queue, static_cast<std::uint64_t>(rank), count);
      counts.put(kEnd);
    } else {
      for (const std::uint64_t got : consume<T>(queue, crew.producers)) counts.put(got);
    }
    if (rank != 0) return;
    // The last producer to end tells the consumers.
    std::uint64_t total = 0;
    const int reports = crew.producers + crew.consumers * crew.producers;
    for (int seen = 0, ended = 0; seen < reports; ++seen) {
      const std::optional<std::uint64_t> report = counts.get(kPatience);
      ASSERT_TRUE(report.has_value());
      if (*report != kEnd) total += *report;
      if (*report == kEnd && ++ended == crew.producers) {
        for (int c = 0; c < crew.consumers; ++c) ASSERT_TRUE(queue.put(end_message<T>(), kPatience));
      }
    }
    EXPECT_EQ(total, count * static_cast<std::uint64_t>(crew.producers));
  });
  EXPECT_TRUE(queue.empty());
}

void in_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

const Crew kCrews[] = {
    {1, 1, {.capacity = 64}}, {1, 1, {.capacity = 1}}, {4, 4, {.capacity = 8}}, {3, 1, {.capacity = 2}}};

TEST_F(QueueTest, ServesManyThreads) {
  for (const Crew& crew : kCrews) {
    run_crew<std::uint64_t>(in_threads, crew);
    run_crew<std::vector<std::uint64_t>>(in_threads, crew);
  }
}

TEST_F(QueueTest, ServesManyProcesses) {
  const auto in_processes = [this](int count, const std::function<void(int)>& body) {
    retinue::test::run_ranks_in(memory_, count, [&](const retinue::JobGroup& group) { body(group.rank); },
                                {.timeout = 60s});
  };
  for (const Crew& crew : kCrews) {
    run_crew<std::uint64_t>(in_processes, crew);
    run_crew<std::vector<std::uint64_t>>(in_processes, crew);
  }
}

}  // namespace
