// Locks, semaphores, events, values and arrays, between threads and between processes.
#include <gtest/gtest.h>

#include <atomic>
#include <cereal/types/utility.hpp>
#include <cstring>
#include <mutex>
#include <string>

#include "ipc/sync_fixture.h"
#include "retinue/ipc/barrier.h"
#include "retinue/ipc/event.h"
#include "retinue/ipc/lock.h"
#include "retinue/ipc/queue.h"
#include "retinue/ipc/semaphore.h"
#include "retinue/ipc/shared_value.h"

using namespace std::chrono_literals;
using retinue::Array;
using retinue::BoundedSemaphore;
using retinue::Event;
using retinue::Lock;
using retinue::RLock;
using retinue::Semaphore;
using retinue::UsageError;
using retinue::Value;
using retinue::test::is_sanitized;
using retinue::test::kPatience;
using retinue::test::SyncTest;
using retinue::test::wait_until;

namespace {

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

/// What another thread has to say.
template <class Call>
auto elsewhere(Call call) {
  decltype(call()) result{};
  std::thread([&] { result = call(); }).join();
  return result;
}

TEST_F(SyncTest, ALockIsItsHolders) {
  Lock lock = Lock::create();
  EXPECT_FALSE(lock.locked());
  lock.acquire();
  EXPECT_TRUE(lock.locked());
  EXPECT_TRUE(lock.is_held_here());
  EXPECT_FALSE(elsewhere([&] { return lock.is_held_here(); }));
  EXPECT_FALSE(elsewhere([&] { return lock.try_lock(); }));
  EXPECT_FALSE(elsewhere([&] { return lock.acquire(1ms); }));
  EXPECT_FALSE(elsewhere([&] { return lock.acquire(retinue::Deadline::after(30ms)); }));
  const std::string other = elsewhere([&] { return message_of([&] { lock.release(); }); });
  EXPECT_NE(other.find("thread " + std::to_string(gettid()) + " does"), std::string::npos) << other;
  EXPECT_FALSE(lock.owner_died());
  lock.release();
  EXPECT_NE(message_of([&] { lock.release(); }).find("no thread does"), std::string::npos);
  lock.unlock();
  EXPECT_TRUE(elsewhere([&] {
    const bool got = lock.acquire(kPatience);
    lock.release();
    return got;
  }));
}

TEST_F(SyncTest, ALockIsTakenOnceAndAnRLockAgain) {
  Lock lock = Lock::create();
  lock.acquire();
  EXPECT_FALSE(lock.try_lock());
  EXPECT_FALSE(lock.acquire(30ms));
  EXPECT_THROW(lock.acquire(), UsageError);
  lock.release();
  RLock rlock = RLock::create();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(rlock.acquire(kPatience));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(elsewhere([&] { return rlock.try_lock(); }));
    rlock.release();
  }
  EXPECT_THROW(rlock.release(), UsageError);
  EXPECT_FALSE(rlock.locked());
  EXPECT_THROW(Lock(nullptr).acquire(), UsageError);
  EXPECT_THROW(RLock(nullptr).locked(), UsageError);
}

TEST_F(SyncTest, LocksServeStandardGuards) {
  Lock a = Lock::create();
  Lock b = Lock::create();
  {
    const std::scoped_lock both(a, b);
    EXPECT_TRUE(a.is_held_here() && b.is_held_here());
    EXPECT_FALSE(elsewhere([&] { return std::unique_lock(a, 1ms).owns_lock(); }));
  }
  std::unique_lock guard(a, std::chrono::steady_clock::now() + kPatience);
  EXPECT_TRUE(guard.owns_lock());
  EXPECT_FALSE(b.locked());
}

TEST_F(SyncTest, AGuardReleasesWhatWasMovedFromItsLock) {
  Lock lock = Lock::create();
  Lock other(nullptr);
  {
    const std::lock_guard guard(lock);
    other = std::move(lock);
  }
  EXPECT_FALSE(other.locked());
}

TEST_F(SyncTest, LocksExclude) {
  const int rounds = is_sanitized() ? 500 : 5000;
  Lock lock = Lock::create();
  RLock rlock = RLock::create();
  Value<int> plain(0);
  Value<int> again(0, rlock);
  in_both(4, [&](int) {
    for (int i = 0; i < rounds; ++i) {
      {
        const std::lock_guard guard(lock);
        ++plain.get_obj();
      }
      const std::lock_guard guard(rlock);
      again.set(again.get() + 1);
    }
  });
  EXPECT_EQ(plain.get(), 8 * rounds);
  EXPECT_EQ(again.get(), 8 * rounds);
}

TEST_F(SyncTest, AKilledHolderHandsTheLockOn) {
  Lock lock = Lock::create();
  RLock rlock = RLock::create();
  Event held = Event::create();
  const pid_t holder = start([&] {
    lock.acquire();
    rlock.acquire();
    rlock.acquire();
    held.set();
    pause_for_ever();
  });
  ASSERT_TRUE(held.wait(kPatience));
  EXPECT_FALSE(lock.acquire(1ms));
  std::thread waiting([&] {
    EXPECT_TRUE(rlock.acquire(kPatience));
    EXPECT_TRUE(rlock.owner_died());
    rlock.release();
    EXPECT_FALSE(rlock.locked());
  });
  kill_now(holder);
  {
    const std::lock_guard guard(lock);
    EXPECT_TRUE(lock.owner_died());
    EXPECT_FALSE(elsewhere([&] { return lock.owner_died(); }));
  }
  waiting.join();
  const std::lock_guard guard(lock);
  EXPECT_FALSE(lock.owner_died());
}

TEST_F(SyncTest, ALockOfAThreadThatEndedIsHandedOn) {
  // In a process of its own: what the thread held the memory by is given back with that.
  const pid_t pid = start([&] {
    Lock lock = Lock::create();
    std::thread([&] { lock.acquire(); }).join();
    EXPECT_FALSE(lock.is_held_here());  // It looks, and does not eat up the news.
    EXPECT_TRUE(lock.acquire(kPatience));
    EXPECT_TRUE(lock.owner_died());
    lock.release();
  });
  EXPECT_EQ(end_of(pid), 0);
}

TEST_F(SyncTest, ALockThatIsHeldKeepsItsMemory) {
  const pid_t pid = start([&] {
    Lock other = Lock::create();
    std::byte* place = nullptr;
    {
      Lock lost = Lock::create();
      place = retinue::detail::encode_value(lost).references.at(0).data();
      lost.acquire();
    }
    std::vector<retinue::SharedBlock> blocks;
    for (int i = 0; i < 20; ++i) {
      blocks.push_back(retinue::SharedBlock::allocate(100));
      std::memset(blocks.back().data(), 0xff, 100);
      EXPECT_NE(blocks.back().data(), place);
    }
    for (int i = 0; i < 10; ++i) const std::lock_guard guard(other);
  });
  EXPECT_EQ(end_of(pid), 0);
}

TEST_F(SyncTest, AForkBehindRetinuesBackHoldsNothing) {
  Lock lock = Lock::create();
  lock.acquire();
  const pid_t pid = fork();
  if (pid == 0) {
    bool is_right = true;
    {
      const std::lock_guard guard(lock, std::adopt_lock);
      is_right = !lock.is_held_here() && !lock.try_lock() && !lock.acquire(1ms);
    }
    _exit(is_right ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(lock.is_held_here());
  lock.release();
}

TEST_F(SyncTest, ASemaphoreCounts) {
  Semaphore semaphore(2);
  EXPECT_TRUE(semaphore.acquire(kPatience));
  EXPECT_TRUE(semaphore.try_lock());
  EXPECT_FALSE(semaphore.try_lock());
  EXPECT_FALSE(semaphore.acquire(1ms));
  EXPECT_EQ(semaphore.get_value(), 0u);
  elsewhere([&] { return semaphore.release(5), 0; });
  EXPECT_EQ(semaphore.get_value(), 5u);
  EXPECT_THROW(semaphore.release(Semaphore::kMostValue), UsageError);
  EXPECT_THROW(semaphore.release(-1), UsageError);
  EXPECT_THROW(Semaphore(std::int64_t{Semaphore::kMostValue} + 1), UsageError);
  EXPECT_THROW(Semaphore(-1), UsageError);
  BoundedSemaphore bounded(1);
  EXPECT_THROW(bounded.release(), UsageError);
  {
    const std::lock_guard guard(bounded);
    EXPECT_EQ(bounded.get_value(), 0u);
  }
  EXPECT_THROW(bounded.release(), UsageError);
  EXPECT_EQ(bounded.get_value(), 1u);
  EXPECT_THROW(Semaphore().acquire(), UsageError);
}

TEST_F(SyncTest, ASemaphoreLetsInSoMany) {
  const int rounds = is_sanitized() ? 300 : 3000;
  Semaphore semaphore(2);
  Array<int> inside(1);
  in_both(5, [&](int) {
    std::atomic_ref<int> now(inside[0]);
    for (int i = 0; i < rounds; ++i) {
      ASSERT_TRUE(semaphore.acquire(kPatience));
      EXPECT_LE(++now, 2);
      --now;
      semaphore.release();
    }
  });
  EXPECT_EQ(semaphore.get_value(), 2u);
}

TEST_F(SyncTest, AKilledWaiterTakesNoPlace) {
  Semaphore semaphore(0);
  Semaphore ready(0);
  std::vector<pid_t> victims;
  for (int i = 0; i < 3; ++i)
    victims.push_back(start([&] {
      ready.release();
      semaphore.acquire();
      pause_for_ever();
    }));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(ready.acquire(kPatience));
  std::thread living([&] { EXPECT_TRUE(semaphore.acquire(kPatience)); });
  for (const pid_t victim : victims) kill_now(victim);
  semaphore.release();
  living.join();
  EXPECT_EQ(semaphore.get_value(), 0u);
}

TEST_F(SyncTest, AnEventLetsAllGo) {
  Event event = Event::create();
  EXPECT_FALSE(event.is_set());
  EXPECT_FALSE(event.wait(1ms));
  event.set();
  event.set();
  EXPECT_TRUE(event.is_set());
  EXPECT_TRUE(event.wait(0ns));
  event.clear();
  EXPECT_FALSE(event.wait(0ns));
  EXPECT_THROW(Event(nullptr).set(), UsageError);
  Semaphore came(0);
  retinue::Barrier round_ends(4);
  in_both(4, [&](int rank) {
    for (int round = 0; round < 20; ++round) {
      if (rank == 0) {
        for (int i = 0; i < 3; ++i) ASSERT_TRUE(came.acquire(kPatience));
        event.set();
      } else {
        came.release();
        EXPECT_TRUE(event.wait(kPatience));
      }
      round_ends.wait(kPatience);
      if (rank == 0) event.clear();
      round_ends.wait(kPatience);
    }
  });
}

TEST_F(SyncTest, AnEventOfAMomentIsNotMissed) {
  Event event = Event::create();
  std::atomic<bool> is_over{false};
  std::thread waiting([&] {
    EXPECT_TRUE(event.wait(kPatience));
    is_over = true;
  });
  ASSERT_TRUE(wait_until([&] {
    event.set();
    event.clear();
    return is_over.load();
  }));
  waiting.join();
}

TEST_F(SyncTest, TheyTravelAsWhatTheyAre) {
  retinue::Queue<std::pair<RLock, Array<int>>> queue({.capacity = 2});
  {
    RLock lock = RLock::create();
    queue.put({lock, Array<int>({1, 2}, lock)});
  }
  auto [lock, row] = queue.get();
  EXPECT_EQ(lock, row.get_lock());
  EXPECT_EQ(row.get(1), 2);
  const auto is_refused = [](const auto& sent, auto to) {
    const retinue::detail::Encoded encoded = retinue::detail::encode_value(sent);
    EXPECT_THROW(retinue::detail::decode_value(encoded.bytes, to), UsageError);
  };
  is_refused(lock, Lock(nullptr));
  is_refused(row, Array<float>());
  is_refused(row, Value<int>());
  is_refused(Semaphore(1), BoundedSemaphore());
  is_refused(retinue::SharedBlock::allocate(10), Event(nullptr));
}

TEST_F(SyncTest, WaitsEndWithTheJob) {
  Lock lock = Lock::create();
  lock.acquire();
  kill_guardian();
  EXPECT_THROW(Semaphore(0).acquire(), retinue::SystemError);
  EXPECT_THROW(Event::create().wait(), retinue::SystemError);
  std::thread([&] { EXPECT_THROW(lock.acquire(), retinue::SystemError); }).join();
  lock.release();
}

}  // namespace
