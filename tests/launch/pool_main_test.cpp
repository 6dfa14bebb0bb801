#include "retinue/launch/pool.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <numeric>
#include <ranges>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "launch/pool_fixture.h"
#include "retinue/ipc/event.h"
#include "retinue/ipc/lock.h"
#include "retinue/ipc/queue.h"
#include "retinue/ipc/semaphore.h"
#include "retinue/ipc/shared_block.h"
#include "retinue/ipc/shared_value.h"
#include "retinue/launch/spawn.h"
#include "support/start_methods.h"
#include "support/usage_error.h"

using namespace std::chrono_literals;
using retinue::Closed;
using retinue::Event;
using retinue::Future;
using retinue::JobMemory;
using retinue::Pool;
using retinue::ProcessExitedException;
using retinue::ProcessRaisedException;
using retinue::Queue;
using retinue::Semaphore;
using retinue::SharedBlock;
using retinue::StartMethod;
using retinue::Value;
using retinue::test::allocated;
using retinue::test::EachStartMethod;
using retinue::test::kLong;
using retinue::test::numbers;
using retinue::test::PoolTest;
using retinue::test::square;
using retinue::test::usage_error_of;

namespace {

std::string join_texts(const std::string& first, const std::vector<int>& rest) {
  std::string text = first;
  for (const int each : rest) text += fmt::format(",{}", each);
  return text;
}
int next_of(int number) {
  return number + 1;
}
void do_nothing(int) {}

TEST_P(EachStartMethod, RunsFunctions) {
  const std::size_t before = allocated();
  {
    Pool pool({.processes = 2, .start_method = GetParam()});
    EXPECT_EQ(pool.size(), 2);
    EXPECT_EQ(pool.apply<square>(7), 49);
    EXPECT_EQ((pool.apply<join_texts>("a", std::vector<int>{1, 2})), "a,1,2");
    const Future<int> pending = pool.apply_async<square>(8);
    EXPECT_EQ(pending.get(kLong), 64);
    EXPECT_EQ(pending.get(), 64);
    EXPECT_TRUE(pending.ready());
    const std::vector<int> squares = pool.map<square>(numbers(1000));
    ASSERT_EQ(squares.size(), 1000u);
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(squares[static_cast<std::size_t>(i)], i * i);
    EXPECT_EQ((pool.map<join_texts>({{"x", {1}}, {"y", {}}})), (std::vector<std::string>{"x,1", "y"}));
    EXPECT_TRUE(pool.map<square>({}).empty());
    pool.close();
    EXPECT_THROW(pool.apply<square>(1), Closed);
    EXPECT_TRUE(pool.join(kLong));
  }
  EXPECT_EQ(allocated(), before);
}

SharedBlock mark(const SharedBlock& given, int at) {
  given.data()[at] = std::byte{7};
  SharedBlock own = SharedBlock::allocate(16);
  own.data()[0] = std::byte{8};
  return own;
}
int use_shared(Queue<int> in, const Value<int>& sum, Semaphore turns) {
  if (!turns.acquire(20s)) throw std::runtime_error("no turn came");
  const int got = in.get();
  sum.update([&](int& value) { return value += got; });
  turns.release();
  return got;
}

TEST_P(EachStartMethod, SharesMemory) {
  const std::size_t before = allocated();
  {
    Pool pool({.processes = 2, .start_method = GetParam()});
    const SharedBlock given = SharedBlock::allocate(16);
    const SharedBlock made = pool.apply<mark>(given, 3);
    EXPECT_EQ(given.data()[3], std::byte{7});
    EXPECT_EQ(made.data()[0], std::byte{8});
    Queue<int> queue({.capacity = 8});
    const Value<int> sum(0);
    const Semaphore turns(1);
    std::vector<std::tuple<Queue<int>, Value<int>, Semaphore>> items;
    for (int i = 1; i <= 4; ++i) {
      queue.put(i);
      items.emplace_back(queue, sum, turns);
    }
    EXPECT_EQ(pool.map<use_shared>(items, {.chunk_size = 1}).size(), 4u);
    EXPECT_EQ(sum.get(), 10);
  }
  EXPECT_EQ(allocated(), before);
}

INSTANTIATE_TEST_SUITE_P(Pool, EachStartMethod, retinue::test::all_start_methods(), retinue::test::start_method_name);

TEST_F(PoolTest, MapsAHundredThousandEmptyTasks) {
  Pool pool({.processes = 2});
  pool.map<do_nothing>(std::views::iota(0, 100'000));
  const std::vector<int> all = numbers(100'000);
  const std::vector<int> next = pool.map<next_of>(all);
  ASSERT_EQ(next.size(), all.size());
  for (const int i : all) ASSERT_EQ(next[static_cast<std::size_t>(i)], i + 1);
  EXPECT_EQ(pool.map<square>(numbers(5'000), {.chunk_size = 1}).back(), 4999 * 4999);
}

int raise_at(int number) {
  if (number % 10 == 3) throw std::out_of_range(fmt::format("number {}", number));
  return number;
}

/// Its child would go on as a second worker, and give results of tasks that others have.
int fork_and_return(int number) {
  const pid_t child = fork();
  if (child == 0) {
    close(STDERR_FILENO);
    return -1;
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? number : -2;
}

TEST_F(PoolTest, ATasksForkedChildIsNoWorker) {
  Pool pool({.processes = 2});
  for (int round = 0; round < 20; ++round) {
    EXPECT_EQ(pool.map<fork_and_return>(numbers(4)), numbers(4));
    EXPECT_EQ(pool.map<square>(numbers(4)), (std::vector<int>{0, 1, 4, 9}));
  }
}

void leave_early() {
  std::exit(0);
}

TEST_F(PoolTest, AWorkerThatExitsHasLostItsTask) {
  Pool pool({.processes = 1});
  try {
    pool.apply<leave_early>();
    ADD_FAILURE() << "a result of a task that did not return";
  } catch (const ProcessExitedException& error) {
    EXPECT_NE(std::string(error.what()).find("which was running it, exited with code 0"), std::string::npos)
        << error.what();
  }
}

TEST_F(PoolTest, GivesTheFirstErrorByIndex) {
  Pool pool({.processes = 2});
  for (const std::size_t chunk_size : {1, 7, 0, 100}) {
    try {
      pool.map<raise_at>(numbers(100), {.chunk_size = chunk_size});
      FAIL() << "nothing was thrown";
    } catch (const ProcessRaisedException& error) {
      EXPECT_EQ(error.outcome().type, "std::out_of_range");
      EXPECT_EQ(error.outcome().message, "number 3");
      EXPECT_GT(error.pid(), 0);
      EXPECT_NE(error.outcome().stack.find("raise_at"), std::string::npos) << error.outcome().stack;
      EXPECT_EQ(std::string(error.what()).find("item 3 of Pool::map raised std::out_of_range: number 3\n  in worker "),
                0u)
          << error.what();
    }
  }
  EXPECT_EQ(pool.apply<raise_at>(4), 4);
  EXPECT_THROW(pool.apply<raise_at>(33), ProcessRaisedException);
}

TEST_F(PoolTest, IteratesInOrder) {
  Pool pool({.processes = 2});
  int expected = 0;
  for (const int value : pool.imap<square>(std::views::iota(0, 100))) {
    EXPECT_EQ(value, expected * expected);
    ++expected;
  }
  EXPECT_EQ(expected, 100);
  // An endless source: only as much is taken as is needed.
  auto endless = pool.imap<square>(std::views::iota(0), {.chunk_size = 3});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(endless.next(kLong), i * i);
}

TEST_F(PoolTest, GoesOnIteratingAfterAnError) {
  Pool pool({.processes = 2});
  for (const std::size_t chunk_size : {1, 4}) {
    auto results = pool.imap<raise_at>(numbers(20), {.chunk_size = chunk_size});
    int errors = 0;
    std::vector<int> values;
    for (int i = 0; i < 20; ++i) {
      try {
        values.push_back(results.next(kLong).value());
      } catch (const ProcessRaisedException& error) {
        EXPECT_EQ(error.outcome().message, fmt::format("number {}", i));
        ++errors;
      }
    }
    EXPECT_EQ(errors, 2);
    EXPECT_EQ(values.size(), 18u);
    EXPECT_FALSE(results.next().has_value());
  }
}

int wait_for(int number, Event event) {
  if (!event.wait(20s)) throw std::runtime_error("the event did not come");
  return number;
}

TEST_F(PoolTest, IteratesAsResultsCome) {
  Pool pool({.processes = 2});
  const Event first = Event::create();
  Event second = Event::create();
  second.set();
  std::vector<std::tuple<int, Event>> items = {{0, first}, {1, second}, {2, second}, {3, second}};
  std::set<int> seen;
  auto results = pool.imap_unordered<wait_for>(items, {.chunk_size = 1});
  for (int i = 0; i < 3; ++i) seen.insert(results.next(kLong).value());
  EXPECT_EQ(seen, (std::set<int>{1, 2, 3}));
  EXPECT_THROW(results.next(1ms), retinue::TimeoutError);
  Event(first).set();
  EXPECT_EQ(results.next(kLong), 0);
  EXPECT_FALSE(results.next().has_value());
}

TEST_F(PoolTest, EndsWaitsInTime) {
  Pool pool({.processes = 1});
  Event event = Event::create();
  const Future<int> pending = pool.apply_async<wait_for>(5, event);
  EXPECT_FALSE(pending.ready());
  EXPECT_FALSE(pending.wait(2ms));
  EXPECT_THROW(pending.get(2ms), retinue::TimeoutError);
  EXPECT_NE(usage_error_of([&] { pool.join(); }).find("call close() or terminate() first"), std::string::npos);
  pool.close();
  EXPECT_FALSE(pool.join(2ms));
  event.set();
  EXPECT_EQ(pending.get(kLong), 5);
  EXPECT_TRUE(pool.join(kLong));
}

TEST_F(PoolTest, FuturesMayBeWaitedForByThreads) {
  Pool pool({.processes = 2});
  std::vector<Future<int>> pending;
  for (int i = 0; i < 40; ++i) pending.push_back(pool.apply_async<square>(i));
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 40; ++i)
        if (pending[static_cast<std::size_t>(i)].get(kLong) == i * i) ++right;
      for (int i = 0; i < 20; ++i)
        if (pool.apply<square>(i) == i * i) ++right;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 4 * 60);
}

std::vector<char> large(int bytes) {
  return std::vector<char>(static_cast<std::size_t>(bytes), 'x');
}

TEST_F(PoolTest, DropsResultsThatNobodyReads) {
  Pool pool({.processes = 2});
  for (int i = 0; i < 3000; ++i) pool.apply_async<large>(i % 2 == 0 ? 20'000 : 10);
  EXPECT_EQ(pool.apply<large>(10'000'000).size(), 10'000'000u);
  EXPECT_EQ((pool.map<large>({1'000'000, 3, 2'000'000}, {.chunk_size = 1}))[2].size(), 2'000'000u);
  pool.close();
  EXPECT_TRUE(pool.join(kLong));
}

TEST_F(PoolTest, FuturesOutliveIt) {
  Future<std::vector<char>> done;
  Future<int> never;
  {
    Pool pool({.processes = 1});
    done = pool.apply_async<large>(100'000);
    done.wait();
    never = pool.apply_async<wait_for>(1, Event::create());
  }
  EXPECT_EQ(done.get().size(), 100'000u);
  EXPECT_THROW(never.get(), Closed);
}

int die_of(int code) {
  _exit(code);
}

std::string report_of_a_lost_task(int retries) {
  Pool pool({.processes = 1, .retries = retries});
  try {
    pool.apply<die_of>(9);
  } catch (const ProcessExitedException& error) {
    return error.what();
  }
  return "it returned";
}

TEST_F(PoolTest, SaysHowOftenALostTaskWasStarted) {
  constexpr const char* kAdvice = "set PoolOptions::retries to run such tasks again";
  EXPECT_NE(report_of_a_lost_task(0).find(kAdvice), std::string::npos);
  const std::string report = report_of_a_lost_task(2);
  EXPECT_NE(report.find("it was started 3 times: PoolOptions::retries is 2"), std::string::npos) << report;
  EXPECT_EQ(report.find(kAdvice), std::string::npos) << report;
}

}  // namespace
