// What becomes of a pool's workers, and calls to ranks.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "launch/pool_fixture.h"
#include "retinue/ipc/event.h"
#include "retinue/ipc/semaphore.h"
#include "retinue/ipc/shared_block.h"
#include "retinue/launch/pool.h"
#include "retinue/launch/spawn.h"
#include "support/start_methods.h"
#include "support/usage_error.h"

using namespace std::chrono_literals;
using retinue::Closed;
using retinue::Event;
using retinue::Future;
using retinue::Pool;
using retinue::ProcessContext;
using retinue::ProcessExitedException;
using retinue::ProcessRaisedException;
using retinue::RankContext;
using retinue::Semaphore;
using retinue::SharedBlock;
using retinue::test::allocated;
using retinue::test::EachStartMethod;
using retinue::test::kLong;
using retinue::test::numbers;
using retinue::test::PoolTest;
using retinue::test::square;
using retinue::test::usage_error_of;

namespace {

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

int add(RankContext& context, int number) {
  return 100 * context.rank() + number;
}
int raise_at(RankContext& context, int rank) {
  if (context.rank() == rank) throw std::out_of_range(fmt::format("rank {}", rank));
  return rank;
}
int die(int signal) {
  raise(signal);
  return 0;
}

void serve(RankContext& context) {
  if (!context.serve_calls(20s)) throw std::runtime_error("the calls did not end");
}

TEST_P(EachStartMethod, RanksServeCalls) {
  const std::size_t before = allocated();
  {
    ProcessContext ranks = retinue::spawn<serve>({.nprocs = 3, .start_method = GetParam(), .join = false});
    std::vector<Future<int>> pending;
    for (int i = 0; i < 300; ++i) pending.push_back(ranks.call<add>(i % 2, i));  // None for rank 2.
    for (int i = 0; i < 300; ++i) EXPECT_EQ(pending[static_cast<std::size_t>(i)].get(kLong), 100 * (i % 2) + i);
    EXPECT_EQ(ranks.call<square>(0, 5).get(kLong), 25);
    EXPECT_EQ(ranks.call<raise_at>(0, 1).get(kLong), 1);
    try {
      ranks.call<raise_at>(1, 1).get(kLong);
      FAIL() << "it returned";
    } catch (const ProcessRaisedException& error) {
      EXPECT_EQ(error.rank(), 1);
      EXPECT_EQ(error.pid(), ranks.pids()[1]);
      EXPECT_EQ(error.outcome().message, "rank 1");
      EXPECT_NE(error.outcome().stack.find("raise_at"), std::string::npos);
    }
    EXPECT_NE(usage_error_of([&] { ranks.call<square>(3, 1); }).find("no rank 3, only 0 to 2"), std::string::npos);
    ranks.end_calls();
    ranks.join();
    EXPECT_THROW(ranks.call<square>(0, 1), Closed);
    EXPECT_THROW(ranks.call<square>(2, 1), Closed);
  }
  EXPECT_EQ(allocated(), before);
}

INSTANTIATE_TEST_SUITE_P(Workers, EachStartMethod, retinue::test::all_start_methods(),
                         retinue::test::start_method_name);

TEST_F(PoolTest, ACallToARankThatDiesFails) {
  ProcessContext ranks = retinue::spawn<serve>({.nprocs = 1, .join = false});
  const auto lost = ranks.call<die>(0, SIGKILL);
  // Behind it; the call itself fails where the rank has died by then.
  EXPECT_THROW(ranks.call<square>(0, 1).get(kLong), ProcessExitedException);
  try {
    lost.get(kLong);
    FAIL() << "it returned";
  } catch (const ProcessExitedException& error) {
    EXPECT_EQ(error.signal(), SIGKILL);
    EXPECT_NE(std::string(error.what()).find("lost a task of ProcessContext::call: rank 0 (pid "), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(ranks.join(), ProcessExitedException);
}

void return_at_once(int) {}
void serve_for_a_moment(RankContext& context) {
  if (context.serve_calls(1ms)) throw std::runtime_error("nobody ended the calls");
}

TEST_F(PoolTest, ACallToARankThatDoesNotServeFails) {
  ProcessContext ranks = retinue::spawn<return_at_once>({.nprocs = 1, .join = false});
  try {
    ranks.call<square>(0, 1).get(kLong);  // The call itself fails where the rank has ended already.
    FAIL() << "it returned";
  } catch (const ProcessExitedException& error) {
    EXPECT_NE(std::string(error.what()).find("ended before it served the call"), std::string::npos) << error.what();
  }
  ranks.join();
  ranks = retinue::spawn<serve_for_a_moment>({.nprocs = 1, .join = false});
  ranks.join();
}

TEST_F(PoolTest, CallsEndWithTheirContext) {
  Future<int> pending;
  {
    ProcessContext ranks = retinue::spawn<return_at_once>({.nprocs = 1});
    EXPECT_THROW(ranks.call<square>(0, 1), Closed);
    ranks = retinue::spawn<serve>({.nprocs = 1, .join = false});
    pending = ranks.call<square>(0, 6);
    EXPECT_EQ(pending.get(kLong), 36);
    pending = ranks.call<die>(0, SIGSTOP);
    ranks.kill();
    EXPECT_THROW(pending.get(kLong), ProcessExitedException);
    ranks.wait();
  }
  EXPECT_THROW(pending.get(kLong), ProcessExitedException);
}

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
  EXPECT_THROW(pool.apply<always_die>(9), ProcessExitedException);
  EXPECT_EQ(pool.apply<square>(3), 9);
}

int wait_for(int number, Event event) {
  if (!event.wait(20s)) throw std::runtime_error("the event did not come");
  return number;
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
  EXPECT_EQ(count_workers(pool, 3), 3u);
  pool.resize(1);
  EXPECT_EQ(pool.size(), 1);
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
  EXPECT_THROW(pool.apply<square>(1), ProcessExitedException);
}

TEST_F(PoolTest, IsTerminated) {
  Pool pool({.processes = 2});
  const auto pending =
      pool.map_async<wait_for>(std::vector<std::tuple<int, Event>>(10, {1, Event::create()}), {.chunk_size = 1});
  const std::vector<int> pids = pool.pids();
  pool.terminate();
  EXPECT_THROW(pending.get(kLong), Closed);
  EXPECT_TRUE(pool.join(kLong));
  for (const int pid : pids) EXPECT_EQ(kill(pid, 0), -1) << pid;
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
  if (child == 0) _exit(usage_error_of([&] { pool.apply<square>(1); }).find("was forked") == std::string::npos ? 1 : 0);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
