// A process is killed at each point of what locks, conditions, barriers, semaphores and events do; nobody hangs by
// that. The sources are compiled here once more, with these points in them.
#define RETINUE_CRASH_POINTS
#include "ipc/sync/barrier.cpp"    // NOLINT(bugprone-suspicious-include)
#include "ipc/sync/condition.cpp"  // NOLINT(bugprone-suspicious-include)
#include "ipc/sync/event.cpp"      // NOLINT(bugprone-suspicious-include)
#include "ipc/sync/lock.cpp"       // NOLINT(bugprone-suspicious-include)
#include "ipc/sync/semaphore.cpp"  // NOLINT(bugprone-suspicious-include)
#include "ipc/sync/wait_list.cpp"  // NOLINT(bugprone-suspicious-include)

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "ipc/sync_fixture.h"
#include "retinue/ipc/shared_value.h"

namespace retinue {

namespace {
long points_left = 0;  // 0: nobody is to die.
}

void crash_here() {
  if (points_left > 0 && --points_left == 0) kill(getpid(), SIGKILL);
}

namespace {

using namespace std::chrono_literals;
using test::kPatience;
using test::wait_until;

class SyncCrashTest : public test::SyncTest {
 protected:
  /// Starts a victim that dies at its first point, its second, and so on, until it comes through; `survive` goes on
  /// beside it and returns when it has ended. Returns how many points there were.
  long sweep(const std::function<void()>& act, const std::function<void(pid_t)>& survive) {
    for (long point = 1;; ++point) {
      SCOPED_TRACE("point " + std::to_string(point));
      const pid_t victim = start([&] {
        points_left = point;
        act();
        points_left = 0;
      });
      survive(victim);
      const int status = end_of(victim);
      if (WIFSIGNALED(status) && !HasFailure()) continue;
      EXPECT_EQ(status, 0);
      return point - 1;
    }
  }
  static bool has_ended(pid_t pid) {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT | WNOHANG) == 0 && info.si_pid == pid;
  }
  static void wait_for_end(pid_t pid) {
    siginfo_t info;
    EXPECT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  }
};

TEST_F(SyncCrashTest, WhoLocksIsKilledAnywhere) {
  RLock lock = RLock::create();
  Array<int> words(2, lock);
  EXPECT_GE(sweep(
                [&] {
                  lock.acquire();
                  lock.acquire();
                  ++words[0];
                  RETINUE_CRASH_POINT();
                  ++words[1];
                  lock.release();
                  lock.release();
                  EXPECT_FALSE(lock.is_held_here());
                },
                [&](pid_t victim) {
                  wait_for_end(victim);
                  // Another one sees the death first; whoever takes the lock next is told all the same.
                  static_cast<void>(lock.is_held_here());
                  ASSERT_TRUE(lock.acquire(kPatience));
                  EXPECT_TRUE(words[0] == words[1] || lock.owner_died());
                  words[1] = words[0];
                  lock.release();
                  ASSERT_TRUE(lock.acquire(0ns));
                  EXPECT_FALSE(lock.owner_died());
                  lock.release();
                }),
            8);
}

TEST_F(SyncCrashTest, WhoWaitsForAConditionIsKilledAnywhere) {
  RLock lock = RLock::create();
  Condition condition(lock);
  for (const auto timeout : {std::chrono::nanoseconds(1ms), std::chrono::nanoseconds(kPatience)}) {
    EXPECT_GE(sweep(
                  [&] {
                    const std::lock_guard guard(condition);
                    condition.wait(timeout);
                  },
                  [&](pid_t victim) {
                    std::atomic<bool> is_woken{false};
                    std::thread living([&] {
                      const std::lock_guard guard(condition);
                      EXPECT_TRUE(condition.wait(kPatience));
                      is_woken = true;
                    });
                    // One at a time: what the victim got and took along goes to the other.
                    EXPECT_TRUE(wait_until([&] {
                      const std::lock_guard guard(condition);
                      condition.notify(1);
                      return is_woken && has_ended(victim);
                    }));
                    living.join();
                  }),
              10);
  }
}

TEST_F(SyncCrashTest, WhoNotifiesIsKilledAnywhere) {
  RLock lock = RLock::create();
  Condition condition(lock);
  Value<int> waiting(0, lock);
  EXPECT_GE(sweep(
                [&] {
                  EXPECT_TRUE(wait_until([&] { return waiting.get() == 2; }));
                  const std::lock_guard guard(condition);
                  condition.notify(2);
                },
                [&](pid_t victim) {
                  std::atomic<int> woken{0};
                  waiting.set(0);
                  const auto body = [&](int) {
                    const std::lock_guard guard(condition);
                    ++waiting.get_obj();
                    EXPECT_TRUE(condition.wait(kPatience));
                    ++woken;
                  };
                  std::thread both([&] { in_threads(2, body); });
                  EXPECT_TRUE(wait_until([&] {
                    if (!has_ended(victim)) return false;
                    const std::lock_guard guard(condition);
                    condition.notify(2);
                    return woken == 2;
                  }));
                  both.join();
                }),
            8);
}

/// Why it broke; nothing if it did not.
std::string why(const std::function<void()>& call) {
  try {
    call();
  } catch (const BrokenBarrierError& error) {
    return error.what();
  }
  return "";
}

TEST_F(SyncCrashTest, APartyIsKilledAnywhere) {
  Barrier barrier(3);
  const SharedBlock block = detail::encode_value(barrier).references.at(0);
  WaitListState& places = reinterpret_cast<BarrierState*>(block.data())->waiters;
  const auto is_free = [&](std::uint32_t place) { return places.places[place].load() == 0; };
  for (const bool comes_last : {false, true}) {
    EXPECT_GE(sweep(
                  [&] {
                    const bool is_time =
                        !comes_last || wait_until([&] { return is_free(0) && barrier.n_waiting() == 2; });
                    EXPECT_TRUE(is_time);
                    EXPECT_EQ(why([&] { barrier.wait([] { RETINUE_CRASH_POINT(); }, kPatience); }), "");
                  },
                  [&](pid_t victim) {
                    // The first place becomes free when the two others are in: so the victim wakes itself first.
                    const WaitPlace other(own_owner(*memory_), 0, WaitPlace::Phase::kWoken);
                    if (comes_last) places.places[0] = other.word();
                    if (comes_last) places.used = std::max(places.used.load(), 1u);
                    std::atomic<int> waited{0};
                    std::thread others([&] {
                      if (!comes_last) wait_until([&] { return barrier.n_waiting() == 1 || has_ended(victim); });
                      in_threads(2, [&](int) {
                        why([&] { barrier.wait(); });
                        ++waited;
                      });
                    });
                    if (comes_last) {
                      EXPECT_TRUE(wait_until([&] { return barrier.n_waiting() == 2; }));
                      places.places[0] = 0;
                    }
                    wait_for_end(victim);
                    // Without it nobody would come, had it died before it was in, or behind it.
                    EXPECT_TRUE(wait_until([&] {
                      if (waited < 2 && barrier.n_waiting() == 2) barrier.abort();
                      return waited == 2;
                    }));
                    barrier.abort();  // Where that was in vain.
                    others.join();
                    barrier.reset();
                    EXPECT_EQ(barrier.n_waiting(), 0);
                    in_threads(3, [&](int) { EXPECT_EQ(why([&] { barrier.wait(kPatience); }), ""); });
                  }),
              comes_last ? 8 : 6);
  }
}

/// The barrier's own lock is not to be had while one party acts: that one gives up, and must not be waited for.
TEST_F(SyncCrashTest, APartyThatGivesUpBreaksIt) {
  Barrier barrier(2);
  const SharedBlock block = detail::encode_value(barrier).references.at(0);
  auto& state = *reinterpret_cast<BarrierState*>(block.data());
  std::string other;
  std::thread waiting([&] { other = why([&] { barrier.wait(); }); });
  ASSERT_TRUE(wait_until([&] { return barrier.n_waiting() == 1; }));
  std::thread late;
  const auto patience = memory_->lock_patience();
  memory_->set_lock_patience(300ms);
  EXPECT_THROW(barrier.wait([&] {
    late = std::thread([&] {
      try {
        why([&] { barrier.wait(); });
      } catch (const TimeoutError&) {
        // It needs the lock as well, and may give up sooner.
      }
    });
    ASSERT_EQ(state.mutex.lock(kPatience), RobustMutex::Result::kLocked);
  }),
               TimeoutError);
  memory_->set_lock_patience(patience);
  state.mutex.unlock();
  waiting.join();
  late.join();
  EXPECT_NE(other.find("gave up"), std::string::npos) << other;
  EXPECT_TRUE(barrier.broken());
  barrier.reset();
  in_threads(2, [&](int) { EXPECT_EQ(why([&] { barrier.wait(kPatience); }), ""); });
}

TEST_F(SyncCrashTest, WhoHasASemaphoreIsKilledAnywhere) {
  Semaphore semaphore(1);
  EXPECT_GE(sweep(
                [&] {
                  semaphore.acquire();
                  semaphore.release();
                },
                [&](pid_t victim) {
                  wait_for_end(victim);
                  EXPECT_LE(semaphore.get_value(), 1u);
                  // As everywhere, what the dead had acquired is not released by itself; by another it is.
                  if (semaphore.get_value() == 0) semaphore.release();
                  in_threads(2, [&](int) {
                    EXPECT_TRUE(semaphore.acquire(kPatience));
                    semaphore.release();
                  });
                }),
            2);
}

TEST_F(SyncCrashTest, WhoSetsAnEventIsKilledAnywhere) {
  Event event = Event::create();
  EXPECT_GE(sweep([&] { event.set(); },
                  [&](pid_t victim) {
                    std::thread waiting([&] { EXPECT_TRUE(event.wait(kPatience)); });
                    wait_for_end(victim);
                    event.set();
                    waiting.join();
                    event.clear();
                  }),
            2);
}

}  // namespace
}  // namespace retinue
