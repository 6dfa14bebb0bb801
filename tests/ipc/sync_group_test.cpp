// Conditions and barriers, between threads and between processes.
#include <gtest/gtest.h>

#include <atomic>
#include <cereal/types/utility.hpp>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "ipc/sync_fixture.h"
#include "retinue/base/error.h"
#include "retinue/ipc/barrier.h"
#include "retinue/ipc/condition.h"
#include "retinue/ipc/event.h"
#include "retinue/ipc/queue.h"
#include "retinue/ipc/shared_value.h"

using namespace std::chrono_literals;
using retinue::Array;
using retinue::Barrier;
using retinue::BrokenBarrierError;
using retinue::Condition;
using retinue::Deadline;
using retinue::Event;
using retinue::Lock;
using retinue::RLock;
using retinue::UsageError;
using retinue::Value;
using retinue::test::is_sanitized;
using retinue::test::kPatience;
using retinue::test::SyncTest;
using retinue::test::wait_until;

namespace {

/// Waiters that say under the lock that they are about to wait, so that who has the lock then knows that they do.
class ConditionTest : public SyncTest {
 protected:
  void wait_once(int rank) {
    const std::lock_guard guard(condition_);
    order_[static_cast<std::size_t>(waiting_.update([](int& count) { return count++; }))] = rank;
    if (condition_.wait(kPatience)) woken_.update([&](std::vector<int>::size_type& set) { set |= 1u << rank; });
  }
  bool wait_for_waiters(int count) {
    return wait_until([&] { return waiting_.get() == count; });
  }
  void notify(std::uint32_t count) {
    const std::lock_guard guard(condition_);
    condition_.notify(count);
  }
  int woken() { return __builtin_popcountll(woken_.get()); }

  RLock lock_ = RLock::create();
  Condition condition_{lock_};
  Value<int> waiting_{0, lock_};
  Value<std::vector<int>::size_type> woken_{0, lock_};
  Array<int> order_{std::size_t{64}, lock_};
};

TEST_F(ConditionTest, NeedsItsLock) {
  EXPECT_THROW(condition_.wait(), UsageError);
  EXPECT_THROW(condition_.notify(), UsageError);
  EXPECT_THROW(Condition(nullptr).notify_all(), UsageError);
  EXPECT_THROW(Condition{RLock(nullptr)}, UsageError);
  condition_.acquire();
  EXPECT_FALSE(condition_.try_lock() && !lock_.is_held_here());
  EXPECT_FALSE(condition_.wait(Deadline::after(1ms)));
  EXPECT_TRUE(lock_.is_held_here());
  condition_.release();
  condition_.release();
  EXPECT_FALSE(lock_.locked());
  EXPECT_THROW(condition_.release(), UsageError);
}

TEST_F(ConditionTest, WakesSoManyTheOldestFirst) {
  in_both(7, [&](int rank) {
    if (rank != 0) return wait_once(rank);
    ASSERT_TRUE(wait_for_waiters(6));
    notify(1);
    ASSERT_TRUE(wait_until([&] { return woken() == 1; }));
    notify(2);
    ASSERT_TRUE(wait_until([&] { return woken() == 3; }));
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NE(woken_.get() >> order_.get(i) & 1, 0u);
    notify(~0u);
    ASSERT_TRUE(wait_until([&] { return woken() == 6; }));
    notify(5);  // Nobody is there, and nobody is to come.
    waiting_.set(0);
    woken_.set(0);
    const std::lock_guard guard(condition_);
    EXPECT_FALSE(condition_.wait(1ms));
  });
}

TEST_F(ConditionTest, LeavesAllLevelsOfAnRLock) {
  Event is_in = Event::create();
  std::thread waiting([&] {
    const std::scoped_lock twice(condition_);
    const std::lock_guard again(lock_);
    is_in.set();
    EXPECT_TRUE(condition_.wait(kPatience));
    lock_.release();
    EXPECT_TRUE(lock_.is_held_here());
    lock_.acquire();
  });
  ASSERT_TRUE(is_in.wait(kPatience));
  notify(1);
  waiting.join();
  EXPECT_FALSE(lock_.locked());
}

TEST_F(ConditionTest, WaitsForAPredicate) {
  Lock lock = Lock::create();
  Condition condition(lock);
  Value<int> stage(0);
  in_both(2, [&](int rank) {
    std::unique_lock guard(condition);
    for (int round = 0; round < 200; ++round) {
      ASSERT_TRUE(condition.wait_for([&] { return stage.get() % 2 == rank; }, kPatience));
      stage.set(stage.get() + 1);
      condition.notify();
    }
  });
  EXPECT_EQ(stage.get(), 800);
  const std::lock_guard guard(condition);
  EXPECT_FALSE(condition.wait_for([] { return false; }, 1ms));
  EXPECT_EQ(condition.wait_for([] { return 7; }, 0ns), 7);
}

TEST_F(ConditionTest, ADeadWaiterIsPassedOver) {
  const pid_t victim = start([&] { wait_once(1); });
  ASSERT_TRUE(wait_for_waiters(1));
  std::thread living([&] { wait_once(2); });
  ASSERT_TRUE(wait_for_waiters(2));
  kill_now(victim);
  notify(1);
  living.join();
  EXPECT_EQ(woken_.get(), 4u);
}

TEST_F(ConditionTest, AWakeUpOfTheDeadIsPassedOn) {
  const pid_t victim = start([&] { wait_once(1); });
  ASSERT_TRUE(wait_for_waiters(1));
  std::thread living([&] { wait_once(2); });
  ASSERT_TRUE(wait_for_waiters(2));
  kill(victim, SIGSTOP);
  ASSERT_TRUE(wait_until([&] {
    int status = 0;
    return waitpid(victim, &status, WUNTRACED) == victim && WIFSTOPPED(status);
  }));
  notify(1);
  EXPECT_EQ(woken(), 0);
  kill_now(victim);
  living.join();
  EXPECT_EQ(woken_.get(), 4u);
}

TEST_F(ConditionTest, AWaiterThatTakesTheLockFromTheDeadIsTold) {
  const pid_t notifier = start([&] {
    if (!wait_for_waiters(1)) return;
    condition_.acquire();
    condition_.notify();
    raise(SIGKILL);
  });
  {
    const std::lock_guard guard(condition_);
    waiting_.set(1);
    EXPECT_TRUE(condition_.wait(kPatience));
    EXPECT_TRUE(condition_.owner_died());
  }
  EXPECT_TRUE(WIFSIGNALED(end_of(notifier)));
}

class BarrierTest : public SyncTest {
 protected:
  /// Why it broke; nothing if it did not.
  static std::string why(const std::function<void()>& call) {
    try {
      call();
    } catch (const BrokenBarrierError& error) {
      const std::string text = error.what();
      return text.substr(text.rfind(": ") + 2);
    }
    return "";
  }
};

TEST_F(BarrierTest, LetsAllGoTogether) {
  constexpr int kParties = 4;
  const int rounds = is_sanitized() ? 100 : 500;
  Barrier barrier(kParties);
  Array<int> came(kParties);
  Value<int> numbers(0);
  Value<int> actions(0);
  in_both(kParties, [&](int rank) {
    for (int round = 1; round <= rounds; ++round) {
      came[static_cast<std::size_t>(rank)] = round;
      const int number = barrier.wait([&] { ++actions.get_obj(); }, kPatience);
      numbers.update([&](int& sum) { sum += 1 << 4 * number; });
      for (int i = 0; i < kParties; ++i) ASSERT_GE(came[static_cast<std::size_t>(i)], round);
      EXPECT_EQ(actions.get_obj() % rounds, round % rounds);
      barrier.wait();
      if (rank == 0) {
        EXPECT_EQ(numbers.get(), 0x1111);
        numbers.set(0);
      }
      barrier.wait();
    }
  });
  EXPECT_EQ(actions.get(), 2 * rounds);
  EXPECT_FALSE(barrier.broken());
}

TEST_F(BarrierTest, IsForSoManyParties) {
  EXPECT_THROW(Barrier(0), UsageError);
  EXPECT_THROW(Barrier(Barrier::kMostParties + 1), UsageError);
  EXPECT_THROW(Barrier().wait(), UsageError);
  Barrier one(1);
  EXPECT_EQ(one.parties(), 1);
  EXPECT_EQ(one.wait(), 0);
  EXPECT_EQ(one.wait(1ms), 0);
}

TEST_F(BarrierTest, BreaksWhenTimeIsOver) {
  Barrier barrier(3);
  std::string other;
  std::thread waiting([&] { other = why([&] { barrier.wait(); }); });
  ASSERT_TRUE(wait_until([&] { return barrier.n_waiting() == 1; }));
  EXPECT_EQ(why([&] { barrier.wait(Deadline::after(5ms)); }), "a party timed out before all parties arrived");
  waiting.join();
  EXPECT_EQ(other, "a party timed out before all parties arrived");
  EXPECT_TRUE(barrier.broken());
  EXPECT_EQ(barrier.n_waiting(), 0);
  EXPECT_THROW(barrier.wait(), BrokenBarrierError);
  barrier.reset();
  EXPECT_FALSE(barrier.broken());
  in_threads(3, [&](int) { EXPECT_GE(barrier.wait(kPatience), 0); });
}

TEST_F(BarrierTest, AbortAndResetFreeThoseThatWait) {
  Barrier barrier(2);
  for (const bool is_abort : {false, true}) {
    std::string other;
    std::thread waiting([&] { other = why([&] { barrier.wait(); }); });
    ASSERT_TRUE(wait_until([&] { return barrier.n_waiting() == 1; }));
    is_abort ? barrier.abort() : barrier.reset();
    waiting.join();
    EXPECT_EQ(other, is_abort ? "abort() was called" : "reset() was called while parties waited");
    EXPECT_EQ(barrier.broken(), is_abort);
  }
}

TEST_F(BarrierTest, BreaksWhenTheActionThrows) {
  Barrier barrier(2);
  std::atomic<int> threw{0};
  std::atomic<int> broke{0};
  in_threads(2, [&](int) {
    try {
      barrier.wait([] { throw std::out_of_range("no"); }, kPatience);
    } catch (const std::out_of_range&) {
      ++threw;
    } catch (const BrokenBarrierError& error) {
      EXPECT_NE(std::string(error.what()).find("the action threw"), std::string::npos);
      ++broke;
    }
  });
  EXPECT_EQ(threw, 1);
  EXPECT_EQ(broke, 1);
  EXPECT_TRUE(barrier.broken());
}

TEST_F(BarrierTest, NobodyTimesOutWhileTheActionRuns) {
  Barrier barrier(2);
  Event waits_long_enough = Event::create();
  std::thread acting([&] {
    ASSERT_TRUE(wait_until([&] { return barrier.n_waiting() == 1; }));
    barrier.wait([&] { EXPECT_FALSE(waits_long_enough.wait(150ms)); });
  });
  EXPECT_EQ(barrier.wait(100ms), 0);
  acting.join();
}

TEST_F(BarrierTest, AKilledPartyBreaksIt) {
  Barrier barrier(3);
  for (const bool is_acting : {false, true}) {
    Event is_in = Event::create();
    std::vector<pid_t> victims{start([&] { why([&] { barrier.wait(); }); })};
    if (is_acting)
      victims.push_back(start([&] {
        if (!wait_until([&] { return barrier.n_waiting() == 2; })) return;
        barrier.wait([&] {
          is_in.set();
          pause_for_ever();
        });
      }));
    std::string other;
    std::thread waiting([&] { other = why([&] { barrier.wait(kPatience); }); });
    ASSERT_TRUE(wait_until([&] { return is_acting ? is_in.is_set() : barrier.n_waiting() == 2; }));
    kill_now(victims.back());
    waiting.join();
    EXPECT_EQ(other, "a party was killed, ended or gave up while it waited");
    EXPECT_TRUE(barrier.broken());
    barrier.reset();
  }
  in_threads(3, [&](int) { EXPECT_GE(barrier.wait(kPatience), 0); });
}

/// At whatever instruction: nobody hangs, and a reset makes it whole.
TEST_F(BarrierTest, APartyIsKilledAnywhere) {
  Barrier barrier(3);
  Value<int> rounds(0);
  for (int i = 0; i < (is_sanitized() ? 10 : 30); ++i) {
    const int before = rounds.get();
    const auto body = [&] {
      while (why([&] { barrier.wait([&] { ++std::atomic_ref<int>(rounds.get_obj()); }, kPatience); }).empty()) continue;
    };
    const pid_t victim = start(body);
    const pid_t other = start(body);
    std::thread here(body);
    EXPECT_TRUE(wait_until([&] { return std::atomic_ref<int>(rounds.get_obj()).load() > before + i % 7; }));
    kill_now(victim);
    barrier.abort();  // It may have been killed between two waits.
    here.join();
    EXPECT_TRUE(WIFSIGNALED(end_of(victim)));
    EXPECT_TRUE(WIFEXITED(end_of(other)));
    barrier.reset();
  }
  EXPECT_EQ(barrier.n_waiting(), 0);
}

TEST_F(BarrierTest, TheyTravelAndEndWithTheJob) {
  retinue::Queue<std::pair<Condition, Barrier>> queue({.capacity = 1});
  Condition condition = Condition::create();
  Barrier barrier(2);
  queue.put({condition, barrier});
  auto [same_condition, same_barrier] = queue.get();
  EXPECT_TRUE(same_condition == condition && same_barrier == barrier);
  condition.acquire();
  same_condition.notify();
  condition.release();
  kill_guardian();
  EXPECT_THROW(barrier.wait(), retinue::SystemError);
  condition.acquire();
  EXPECT_THROW(condition.wait(), retinue::SystemError);
  condition.unlock();  // It is not held after that.
  EXPECT_TRUE(condition.try_lock());
  condition.release();
}

}  // namespace
