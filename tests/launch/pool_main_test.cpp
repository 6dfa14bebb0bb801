#include "retinue/launch/pool.h"

#include <fmt/format.h>
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

#include "launch/main_with_runtime.h"
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
using retinue::test::EachStartMethod;
using retinue::test::usage_error_of;

namespace {

constexpr auto kLong = 60s;

std::size_t allocated() {
  return JobMemory::current()->allocated_bytes();
}

/// What pools make must be gone with them.
class PoolTest : public testing::Test {
 protected:
  void SetUp() override { before_ = allocated(); }
  void TearDown() override { EXPECT_EQ(allocated(), before_); }

 private:
  std::size_t before_ = 0;
};

std::vector<int> numbers(int count) {
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

int square(int number) {
  return number * number;
}
std::string join_texts(const std::string& first, const std::vector<int>& rest) {
  std::string text = first;
  for (const int each : rest) text += fmt::format(",{}", each);
  return text;
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

/// Dies the first time, where told so by a word that outlives it.
int die_once(int number, const SharedBlock& block) {
  auto& times = *reinterpret_cast<std::atomic<int>*>(block.data());
  if (number == 5 && times.fetch_add(1) == 0) raise(SIGKILL);
  return number;
}

TEST_P(EachStartMethod, ReplacesAWorkerThatWasKilled) {
  const std::size_t before = allocated();
  {
    const SharedBlock block = SharedBlock::allocate(8);
    new (block.data()) std::atomic<int>(0);
    std::vector<std::tuple<int, SharedBlock>> items;
    for (int i = 0; i < 10; ++i) items.emplace_back(i, block);
    Pool pool({.processes = 1, .start_method = GetParam()});
    const auto lost = pool.map_async<die_once>(items, {.chunk_size = 1});
    try {
      lost.get(kLong);
      FAIL() << "nothing was lost";
    } catch (const ProcessExitedException& error) {
      EXPECT_EQ(error.signal(), SIGKILL);
      EXPECT_GT(error.pid(), 0);
      EXPECT_NE(std::string(error.what()).find("lost item 5 of Pool::map: worker 0 (pid "), std::string::npos)
          << error.what();
    }
    EXPECT_EQ(pool.map<die_once>(items, {.chunk_size = 3}).size(), 10u);
    EXPECT_EQ(pool.pids().size(), 1u);
  }
  EXPECT_EQ(allocated(), before);
}

INSTANTIATE_TEST_SUITE_P(Pool, EachStartMethod, retinue::test::all_start_methods(), retinue::test::start_method_name);

TEST_F(PoolTest, RetriesWhatAKilledWorkerHadInHand) {
  const SharedBlock block = SharedBlock::allocate(8);
  new (block.data()) std::atomic<int>(0);
  std::vector<std::tuple<int, SharedBlock>> items;
  for (int i = 0; i < 10; ++i) items.emplace_back(i, block);
  Pool pool({.processes = 2, .retries = 1});
  EXPECT_EQ(pool.map<die_once>(items), numbers(10));
  EXPECT_EQ(*reinterpret_cast<const int*>(block.data()), 2);
  pool.close();
  pool.join();
}

int always_die(int code) {
  _exit(code);
}

TEST_F(PoolTest, StopsRetrying) {
  Pool pool({.processes = 1, .retries = 2});
  try {
    pool.apply<always_die>(9);
    FAIL() << "it returned";
  } catch (const ProcessExitedException& error) {
    EXPECT_EQ(error.exit_code(), 9);
  }
  EXPECT_EQ(pool.apply<square>(3), 9);
}

TEST_F(PoolTest, MapsAHundredThousandEmptyTasks) {
  Pool pool({.processes = 2});
  pool.map<do_nothing>(std::views::iota(0, 100'000));
  const std::vector<int> all = numbers(100'000);
  const std::vector<int> squares = pool.map<square>(all);
  ASSERT_EQ(squares.size(), all.size());
  for (const int i : all)
    ASSERT_EQ(static_cast<unsigned>(squares[static_cast<std::size_t>(i)]),
              static_cast<unsigned>(i) * static_cast<unsigned>(i));
  EXPECT_EQ(pool.map<square>(numbers(5'000), {.chunk_size = 1}).back(), 4999 * 4999);
}

int raise_at(int number) {
  if (number % 10 == 3) throw std::out_of_range(fmt::format("number {}", number));
  return number;
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
  EXPECT_NE(usage_error_of([&] { pool.join(); }).find("close() it first"), std::string::npos);
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

int own_pid() {
  return getpid();
}

TEST_F(PoolTest, ReplacesWorkersAfterSoManyCalls) {
  Pool pool({.processes = 1, .max_tasks_per_child = 2});
  std::map<int, int> calls;
  for (int i = 0; i < 6; ++i) ++calls[pool.apply<own_pid>()];
  EXPECT_EQ(calls.size(), 3u);
  for (const auto& [pid, count] : calls) EXPECT_EQ(count, 2) << pid;
  EXPECT_EQ(pool.map<square>(numbers(9)).size(), 9u);
}

int pid_after(Semaphore arrived, Event go) {
  arrived.release();
  if (!go.wait(20s)) throw std::runtime_error("nobody said go");
  return getpid();
}

/// How many workers run tasks at a time.
std::size_t count_workers(Pool& pool, int tasks) {
  Semaphore arrived(0);
  Event go = Event::create();
  std::vector<Future<int>> pending;
  for (int i = 0; i < tasks; ++i) pending.push_back(pool.apply_async<pid_after>(arrived, go));
  for (int i = 0; i < tasks; ++i)
    if (!arrived.acquire(20s)) return 0;
  go.set();
  std::set<int> pids;
  for (const Future<int>& each : pending) pids.insert(each.get(kLong));
  return pids.size();
}

TEST_F(PoolTest, IsResized) {
  Pool pool({.processes = 1});
  EXPECT_EQ(count_workers(pool, 1), 1u);
  pool.resize(3);
  EXPECT_EQ(pool.size(), 3);
  EXPECT_EQ(count_workers(pool, 3), 3u);
  pool.resize(1);
  EXPECT_EQ(pool.size(), 1);
  // The surplus ends; whoever waits sees to it.
  Event event = Event::create();
  const auto pending = pool.apply_async<wait_for>(1, event);
  const auto end = std::chrono::steady_clock::now() + kLong;
  while (pool.pids().size() > 1 && std::chrono::steady_clock::now() < end) pending.wait(1ms);
  EXPECT_EQ(pool.pids().size(), 1u);
  event.set();
  EXPECT_EQ(pending.get(kLong), 1);
  EXPECT_NE(usage_error_of([&] { pool.resize(0); }).find("must be 1 to"), std::string::npos);
}

int given = 0;
void set_given(int value, const SharedBlock& count) {
  given = value;
  reinterpret_cast<std::atomic<int>*>(count.data())->fetch_add(1);
}
int get_given(int factor) {
  return given * factor;
}

TEST_F(PoolTest, InitializesEachWorker) {
  const SharedBlock count = SharedBlock::allocate(8);
  new (count.data()) std::atomic<int>(0);
  Pool pool({.processes = 2, .initializer = retinue::initializer<set_given>(21, count)});
  EXPECT_EQ(pool.map<get_given>({1, 2, 3}), (std::vector<int>{21, 42, 63}));
  pool.close();
  pool.join();
  EXPECT_EQ(*reinterpret_cast<const int*>(count.data()), 2);
}

void fail_to_begin(int how) {
  if (how == 0) throw std::runtime_error("no such model");
  raise(SIGKILL);
}

TEST_F(PoolTest, ReportsAnInitializerThatThrows) {
  Pool pool({.processes = 2, .initializer = retinue::initializer<fail_to_begin>(0)});
  try {
    pool.map<square>(numbers(10));
    FAIL() << "it worked";
  } catch (const ProcessRaisedException& error) {
    EXPECT_NE(std::string(error.what()).find("no such model"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("initializer"), std::string::npos) << error.what();
  }
  EXPECT_THROW(pool.apply<square>(1), ProcessRaisedException);
  EXPECT_TRUE(pool.join(kLong));
}

TEST_F(PoolTest, ReportsAnInitializerThatCrashes) {
  Pool pool({.processes = 1, .initializer = retinue::initializer<fail_to_begin>(1)});
  try {
    pool.apply<square>(1);
    FAIL() << "it worked";
  } catch (const ProcessExitedException& error) {
    EXPECT_EQ(error.signal(), SIGKILL);
  }
}

TEST_F(PoolTest, IsTerminated) {
  Pool pool({.processes = 2});
  const auto pending =
      pool.map_async<wait_for>(std::vector<std::tuple<int, Event>>(10, {1, Event::create()}), {.chunk_size = 1});
  pool.terminate();
  EXPECT_THROW(pending.get(kLong), Closed);
  EXPECT_TRUE(pool.join(kLong));
  EXPECT_THROW(pool.apply<square>(1), Closed);
}

void ignore_term(Event ready) {
  std::signal(SIGTERM, SIG_IGN);
  ready.set();
  for (;;) pause();  // Until SIGKILL.
}

TEST_F(PoolTest, EndsAWorkerThatIgnoresSigterm) {
  Event ready = Event::create();
  {
    Pool pool({.processes = 1, .stop = {.terminate_wait = 20ms}});
    pool.apply_async<ignore_term>(ready);
    ASSERT_TRUE(ready.wait(20s));
  }
}

std::string make_pool() {
  return usage_error_of([] { Pool pool({.processes = 1}); });
}
int sum_in_a_pool(int count) {
  Pool pool({.processes = 2});
  const std::vector<int> squares = pool.map<square>(numbers(count));
  return std::accumulate(squares.begin(), squares.end(), 0);
}

TEST_F(PoolTest, IsRefusedInDaemonicWorkers) {
  Pool pool({.processes = 1});
  EXPECT_NE(pool.apply<make_pool>().find("daemonic processes are not allowed to have children"), std::string::npos);
  Pool other({.processes = 2, .daemon = false});
  EXPECT_EQ(other.map<sum_in_a_pool>({3, 4}), (std::vector<int>{5, 14}));
}

TEST_F(PoolTest, IsOfUseInItsOwnProcessOnly) {
  Pool pool({.processes = 1});
  EXPECT_EQ(pool.apply<square>(2), 4);
  const pid_t child = fork();
  if (child == 0) {
    const std::string error = usage_error_of([&] { pool.apply<square>(1); });
    _exit(error.find("was forked") == std::string::npos ? 1 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace

RETINUE_TEST_MAIN()
