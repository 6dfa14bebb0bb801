// Job memory as arguments and return values: the same memory on both sides, and given back when all let go.
#include <gtest/gtest.h>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "retinue/ipc/barrier.h"
#include "retinue/ipc/condition.h"
#include "retinue/ipc/event.h"
#include "retinue/ipc/lock.h"
#include "retinue/ipc/queue.h"
#include "retinue/ipc/semaphore.h"
#include "retinue/ipc/shared_block.h"
#include "retinue/ipc/shared_value.h"
#include "retinue/launch/process.h"
#include "retinue/launch/spawn.h"
#include "support/allocated.h"
#include "support/start_methods.h"

using namespace std::chrono_literals;
using retinue::Array;
using retinue::Barrier;
using retinue::Condition;
using retinue::Event;
using retinue::Lock;
using retinue::RankContext;
using retinue::RLock;
using retinue::Semaphore;
using retinue::SharedBlock;
using retinue::Value;
using retinue::test::allocated;
using retinue::test::EachStartMethod;

namespace {

void write_rank(int rank, const SharedBlock& block) {
  block.data()[rank] = static_cast<std::byte>(rank + 1);
}

TEST_P(EachStartMethod, AnArgumentIsTheSameMemory) {
  const std::size_t before = allocated();
  {
    const SharedBlock block = SharedBlock::allocate(8);
    std::memset(block.data(), 0, 8);
    retinue::spawn<write_rank>({.nprocs = 3, .start_method = GetParam()}, block);
    const std::byte expected[] = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{0}};
    EXPECT_EQ(std::memcmp(block.data(), expected, 4), 0);
  }
  EXPECT_EQ(allocated(), before);
}

using Named = std::map<std::string, SharedBlock>;

Named pass_on(RankContext& context, Named blocks) {
  blocks["own"] = SharedBlock::allocate(64);
  blocks["own"].data()[0] = static_cast<std::byte>(context.rank() + 10);
  blocks.at("given").data()[1] = std::byte{9};
  return blocks;
}

TEST_P(EachStartMethod, ReturnedMemoryOutlivesTheRank) {
  const std::size_t before = allocated();
  {
    // The caller keeps no hold of its own: the argument alone keeps the block.
    retinue::ProcessContext ranks = retinue::spawn<pass_on>({.nprocs = 2, .start_method = GetParam(), .join = false},
                                                            Named{{"given", SharedBlock::allocate(64)}});
    auto values = ranks.wait().values<Named>();
    ranks = retinue::spawn<write_rank>({.start_method = GetParam()}, SharedBlock::allocate(1));
    ASSERT_EQ(values.size(), 2u);
    EXPECT_EQ(values[0].at("given"), values[1].at("given"));
    EXPECT_EQ(values[0].at("given").data()[1], std::byte{9});
    for (int rank : {0, 1}) EXPECT_EQ(values[rank].at("own").data()[0], static_cast<std::byte>(rank + 10));
  }
  EXPECT_EQ(allocated(), before);
}

void hold_and_die(int rank, const SharedBlock& block) {
  const std::vector<SharedBlock> more(3, SharedBlock::allocate(1 << 20));
  block.data()[rank] = std::byte{1};
  raise(SIGKILL);
}

TEST_P(EachStartMethod, AKilledRanksMemoryComesBack) {
  const std::size_t before = allocated();
  const SharedBlock block = SharedBlock::allocate(8);
  const std::size_t with_block = allocated();
  EXPECT_THROW(retinue::spawn<hold_and_die>({.nprocs = 2, .start_method = GetParam()}, block),
               retinue::ProcessExitedException);
  EXPECT_EQ(allocated(), with_block);
  EXPECT_GT(with_block, before);
}

/// Meets the others at a barrier, counts under a lock, and takes its turn by a condition.
RLock meet(int rank, Lock lock, Barrier barrier, Condition changed, const Array<int>& counts,
           const Value<double>& given) {
  barrier.wait(20s);
  for (int i = 0; i < 100; ++i) {
    const std::lock_guard guard(lock);
    ++counts[0];
  }
  const std::lock_guard guard(changed);
  if (!changed.wait_for([&] { return counts[1] == rank; }, 20s)) throw std::runtime_error("its turn did not come");
  ++counts[1];
  changed.notify_all();
  if (given.get() != 2.5) throw std::runtime_error("the value arrived changed");
  return counts.get_lock();
}

void die_with(int rank, Lock lock, Semaphore taken, Event go) {
  if (rank == 1) {
    if (!taken.acquire(20s)) return;
    go.wait(20s);
    raise(SIGKILL);
  }
  lock.acquire();
  taken.release();
  go.set();
  raise(SIGKILL);
}

TEST_P(EachStartMethod, SynchronisesRanks) {
  const std::size_t before = allocated();
  {
    const Array<int> counts(std::size_t{2});
    auto ranks = retinue::spawn<meet>({.nprocs = 3, .start_method = GetParam(), .join = false}, Lock::create(),
                                      Barrier(3), Condition::create(), counts, Value<double>(2.5));
    const auto locks = ranks.wait().values<RLock>();
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(locks.at(rank), counts.get_lock());
    EXPECT_EQ(counts.values(), (std::vector<int>{300, 3}));
    Lock lock = Lock::create();
    EXPECT_THROW(
        retinue::spawn<die_with>({.nprocs = 2, .start_method = GetParam()}, lock, Semaphore(0), Event::create()),
        retinue::ProcessExitedException);
    ASSERT_TRUE(lock.acquire(20s));
    EXPECT_TRUE(lock.owner_died());
    lock.release();
  }
  EXPECT_EQ(allocated(), before);
}

using Row = std::vector<std::uint64_t>;

void double_rows(int /*rank*/, retinue::Queue<Row> in, retinue::Queue<Row> out, retinue::Queue<int> ends) {
  try {
    for (;;) {
      Row row = in.get();
      for (std::uint64_t& value : row) value *= 2;
      out.put(row);
    }
  } catch (const retinue::Closed&) {
    ends.put(1);  // The last thing before its end.
  }
}

TEST_P(EachStartMethod, AQueueArrivesAsTheSameQueue) {
  const std::size_t before = allocated();
  {
    retinue::Queue<Row> in({.capacity = 4, .message_bytes = 64});
    retinue::Queue<Row> out({.capacity = 64, .message_bytes = 64});
    retinue::Queue<int> ends({.capacity = 4});
    retinue::ProcessContext ranks =
        retinue::spawn<double_rows>({.nprocs = 2, .start_method = GetParam(), .join = false}, in, out, ends);
    std::uint64_t put = 0;
    for (std::size_t count : {1, 3, 2000, 5, 8, 1000, 2}) {
      ASSERT_TRUE(in.put(Row(count, count), std::chrono::seconds(30)));
      put += 2 * count * count;
    }
    in.close();
    ranks.join();
    std::uint64_t got = 0;
    for (int i = 0; i < 7; ++i) {
      const std::optional<Row> row = out.try_get();  // Its sender is gone.
      ASSERT_TRUE(row.has_value());
      for (const std::uint64_t value : *row) got += value;
    }
    EXPECT_EQ(got, put);
    EXPECT_EQ(ends.size(), 2u);
  }
  EXPECT_EQ(allocated(), before);
}

void take_two_and_die(int rank, retinue::Queue<int> queue) {
  queue.get();
  queue.get();
  if (rank == 0) raise(SIGKILL);
}

TEST_P(EachStartMethod, WhatAKilledRankHadInHandComesAgain) {
  const std::size_t before = allocated();
  {
    retinue::Queue<int> queue(
        {.capacity = 4, .on_consumer_death = retinue::OnConsumerDeath::kRedeliver, .joinable = true});
    for (int i = 1; i <= 3; ++i) queue.put(i);
    EXPECT_THROW(retinue::spawn<take_two_and_die>({.nprocs = 1, .start_method = GetParam()}, queue),
                 retinue::ProcessExitedException);
    std::set<int> got;
    for (int i = 0; i < 3; ++i) {
      const std::optional<int> value = queue.get(std::chrono::seconds(30));
      ASSERT_TRUE(value.has_value());
      got.insert(*value);
      queue.task_done();
    }
    EXPECT_EQ(got, (std::set<int>{1, 2, 3}));
    EXPECT_TRUE(queue.join(std::chrono::seconds(30)));
  }
  EXPECT_EQ(allocated(), before);
}

void get_one_and_die(int, retinue::Queue<int> queue) {
  queue.get();
  raise(SIGKILL);
}

/// Also when its slot in the job's table is free again.
TEST_P(EachStartMethod, APutDoesNotWaitForConsumersThatAreGone) {
  retinue::Queue<int> queue({.capacity = 1, .no_consumer_timeout = 100ms});
  queue.put(1);
  EXPECT_THROW(retinue::spawn<get_one_and_die>({.nprocs = 1, .start_method = GetParam()}, queue),
               retinue::ProcessExitedException);
  queue.put(2);
  try {
    queue.put(3, 30s);
    ADD_FAILURE() << "it waited";
  } catch (const retinue::PeerLost& error) {
    EXPECT_NE(std::string(error.what()).find("the last one, rank 0 (pid "), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("was killed by SIGKILL"), std::string::npos) << error.what();
    EXPECT_EQ(error.ranks(), std::vector<int>{0});
  }
  // Where a message is in its hand, the report has the rank, too.
  retinue::Queue<int> tasks({.capacity = 1, .joinable = true});
  tasks.put(1);
  EXPECT_THROW(retinue::spawn<get_one_and_die>({.nprocs = 1, .start_method = GetParam()}, tasks),
               retinue::ProcessExitedException);
  EXPECT_TRUE(tasks.join(30s));
  ASSERT_EQ(tasks.lost_messages().size(), 1u);
  EXPECT_EQ(tasks.lost_messages()[0].consumer_rank, 0);
  EXPECT_GT(tasks.lost_messages()[0].consumer_pid, 0);
}

void get_one_and_die_alone(retinue::Queue<int> queue) {
  queue.get();
  raise(SIGKILL);
}

/// Its rank in a world of its own says nothing.
TEST(SharedArguments, AProcessThatDiesWithAMessageIsNoRank) {
  retinue::Queue<int> tasks({.capacity = 1, .joinable = true});
  tasks.put(1);
  retinue::Process<get_one_and_die_alone> consumer(tasks);
  consumer.start();
  EXPECT_TRUE(tasks.join(30s));
  consumer.join();
  ASSERT_EQ(tasks.lost_messages().size(), 1u);
  EXPECT_EQ(tasks.lost_messages()[0].consumer_rank, -1);
  EXPECT_GT(tasks.lost_messages()[0].consumer_pid, 0);
}

INSTANTIATE_TEST_SUITE_P(Shared, EachStartMethod, retinue::test::all_start_methods(), retinue::test::start_method_name);

void set_first(const SharedBlock& block) {
  block.data()[0] = std::byte{5};
}

TEST(SharedArguments, OfAProcessWaitForItsStart) {
  const std::size_t before = allocated();
  const SharedBlock seen = SharedBlock::allocate(16);
  {
    retinue::Process<set_first> process{SharedBlock(seen)};
    process.start();
    process.join();
    EXPECT_EQ(process.exitcode(), 0);
  }
  EXPECT_EQ(seen.data()[0], std::byte{5});
  {
    retinue::Process<set_first> never{SharedBlock::allocate(1 << 20)};
    EXPECT_GT(allocated(), before + (1u << 20));
  }
  EXPECT_EQ(allocated(), before + 4096);
}

TEST(SharedArguments, OfAClosureAreWhatItCaptured) {
  const std::size_t before = allocated();
  {
    SharedBlock captured = SharedBlock::allocate(16);
    const SharedBlock kept = captured;
    retinue::spawn({.nprocs = 2}, [captured = std::move(captured)](RankContext& context) {
      captured.data()[context.rank()] = std::byte{3};
    });
    EXPECT_EQ(kept.data()[0], std::byte{3});
    EXPECT_EQ(kept.data()[1], std::byte{3});
  }
  EXPECT_EQ(allocated(), before);
}

void pass_to_child(int rank, const SharedBlock& block) {
  retinue::spawn<write_rank>({.nprocs = 2}, block);
  block.data()[4 + rank] = std::byte{8};
}

TEST(SharedArguments, ReachTheRanksOfRanks) {
  const std::size_t before = allocated();
  {
    const SharedBlock block = SharedBlock::allocate(16);
    retinue::spawn<pass_to_child>({.nprocs = 2}, block);
    EXPECT_EQ(block.data()[1], std::byte{2});
    EXPECT_EQ(block.data()[5], std::byte{8});
  }
  EXPECT_EQ(allocated(), before);
}

}  // namespace
