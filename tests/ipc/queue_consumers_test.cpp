// Puts that wait for consumers of which none lives.
#include <gtest/gtest.h>

#include <cereal/types/string.hpp>
#include <csignal>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/char_field.h"
#include "ipc/crash_fixture.h"
#include "os/sync/clock.h"
#include "retinue/ipc/pipe.h"
#include "retinue/ipc/queue.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;

using test::kPatience;

constexpr auto kLookedUpOften = 300ms;  // Sleepers look up every 20 ms.

class QueueConsumersTest : public CrashTest {
 protected:
  /// A process gets once and then ends so; its pid.
  template <class T>
  int consume_once(Queue<T>& queue, int signal, int status = 0) {
    const Victim victim = start_victim(0, [&] {
      queue.try_get();
      if (signal != 0) kill(getpid(), signal);
      _exit(status);
    });
    end(victim);
    return victim.pid;
  }
  void end(const Victim& victim) {
    note_end(victim);
    free_process_slot(*memory_, victim.slot);
  }
  /// Does what the guardian would.
  void note_end(const Victim& victim) {
    int status = 0;
    EXPECT_EQ(waitpid(victim.pid, &status, 0), victim.pid);
    ProcessSlot& slot = process_slot(*memory_, victim.slot);
    slot.exit_status.store(status);
    slot.ended_ns.store(monotonic_ns());
    slot.state.store(ProcessState::kDead);
  }
  static std::string lost_peer_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const PeerLost& error) {
      return error.what();
    }
    return {};
  }
};

QueueOptions short_patience() {
  QueueOptions options{.capacity = 1};
  options.no_consumer_timeout = 50ms;
  return options;
}

TEST_F(QueueConsumersTest, APutEndsWhenTheLastOneWasKilled) {
  Queue<int> queue(short_patience());
  const int pid = consume_once(queue, SIGKILL);
  queue.put(1);
  EXPECT_FALSE(queue.try_put(2)) << "nothing is waited for";
  EXPECT_FALSE(queue.put(2, 1ms));
  const std::string error = lost_peer_of([&] { queue.put(2, kPatience); });
  EXPECT_NE(error.find("process " + std::to_string(pid) + ", was killed by SIGKILL"), std::string::npos) << error;
  EXPECT_NE(error.find("no_consumer_timeout"), std::string::npos) << error;
  EXPECT_NE(lost_peer_of([&] { queue.put_many(std::vector<int>(3, 1)); }), "");
}

TEST_F(QueueConsumersTest, APutThatWaitsEndsToo) {
  Queue<std::string> queue(short_patience());
  Queue<int> ready({.capacity = 1});
  queue.put("one");
  const Victim consumer = start_victim(0, [&] {
    queue.get();
    ready.put(1);
    pause();
  });
  ASSERT_TRUE(ready.get(kPatience));
  queue.put("two");
  std::string error;
  std::thread producer([&] { error = lost_peer_of([&] { queue.put("three", kPatience); }); });
  // It waits, or is about to.
  kill(consumer.pid, SIGKILL);
  end(consumer);
  producer.join();
  EXPECT_NE(error.find("was killed by SIGKILL"), std::string::npos) << error;
}

TEST_F(QueueConsumersTest, AFailureByStatusCountsAsWell) {
  Queue<int> queue(short_patience());
  consume_once(queue, 0, 3);
  queue.put(1);
  EXPECT_NE(lost_peer_of([&] { queue.put(2, kPatience); }).find("failed, with exit status 3"), std::string::npos);
}

TEST_F(QueueConsumersTest, SaysWhatTheLastOneThrew) {
  Queue<int> queue(short_patience());
  const Victim victim = start_victim(0, [&] {
    queue.try_get();
    CrashRecord& crash = process_slot(*memory_, memory_->own_slot()).crash;
    crash.kind = CrashKind::kException;
    fill(crash.type, "std::runtime_error");
    fill(crash.message, "no such file\nnested");
    crash.phase.store(2);
    _exit(1);
  });
  end(victim);
  queue.put(1);
  const std::string error = lost_peer_of([&] { queue.put(2, kPatience); });
  EXPECT_NE(error.find(", threw std::runtime_error: no such file ..., and"), std::string::npos) << error;
  EXPECT_NE(error.find("(capacity 1)"), std::string::npos) << error;
}

/// What was put stays put; the next call has the error.
template <class T>
void put_many_beyond(QueueConsumersTest&, const std::function<void(Queue<T>&)>& die, const T& value) {
  Queue<T> queue(short_patience());
  die(queue);
  const std::vector<T> values(3, value);
  EXPECT_EQ(queue.put_many(values, kPatience), 1u);
  EXPECT_THROW(queue.put_many(std::span(values).subspan(1), kPatience), PeerLost);
}

TEST_F(QueueConsumersTest, PutManySaysHowManyWerePut) {
  put_many_beyond<int>(
      *this, [this](Queue<int>& queue) { consume_once(queue, SIGKILL); }, 1);
  put_many_beyond<std::string>(
      *this, [this](Queue<std::string>& queue) { consume_once(queue, SIGKILL); }, "one");
}

TEST_F(QueueConsumersTest, AQueueOfWhichNobodyEverGotWaits) {
  Queue<int> queue(short_patience());
  queue.put(1);
  EXPECT_FALSE(queue.put(2, kLookedUpOften));
}

TEST_F(QueueConsumersTest, AConsumerThatEndedWellIsWaitedFor) {
  Queue<int> queue(short_patience());
  consume_once(queue, 0);
  queue.put(1);
  EXPECT_FALSE(queue.put(2, kLookedUpOften));
}

TEST_F(QueueConsumersTest, AConsumerThatWasStoppedIsWaitedFor) {
  Queue<int> queue(short_patience());
  const Victim victim = start_victim(0, [&] {
    queue.try_get();
    process_slot(*memory_, memory_->own_slot()).stop_signal.store(SIGTERM);
    kill(getpid(), SIGTERM);
  });
  end(victim);
  queue.put(1);
  EXPECT_FALSE(queue.put(2, kLookedUpOften));
}

/// As the job does it with the ranks that were started with one that failed.
TEST_F(QueueConsumersTest, ThoseThatWereStoppedForAFailureOfAnotherOneAreNot) {
  Queue<int> queue(short_patience());
  std::vector<Victim> ranks;
  for (const int signal : {SIGKILL, SIGTERM}) {
    ranks.push_back(start_victim(0, [&] {
      if (signal == SIGTERM) queue.try_get();  // The other one fails before it gets anything.
      kill(getpid(), signal);
    }));
    ProcessSlot& slot = process_slot(*memory_, ranks.back().slot);
    slot.context = 3;
    if (signal == SIGTERM) slot.stop_signal.store(SIGTERM);
    note_end(ranks.back());
  }
  queue.put(1);
  const std::string error = lost_peer_of([&] { queue.put(2, kPatience); });
  EXPECT_NE(error.find(", was stopped by the job after rank 0 (pid "), std::string::npos) << error;
  EXPECT_NE(error.find("was killed by SIGKILL"), std::string::npos) << error;
  for (const Victim& rank : ranks) free_process_slot(*memory_, rank.slot);
}

TEST_F(QueueConsumersTest, AProducerThatGotItselfIsAConsumer) {
  Queue<int> queue(short_patience());
  consume_once(queue, SIGKILL);
  EXPECT_FALSE(queue.try_get());
  queue.put(1);
  EXPECT_FALSE(queue.put(2, kLookedUpOften));
}

TEST_F(QueueConsumersTest, AConsumerThatLivesIsEnough) {
  Queue<int> queue(short_patience());
  consume_once(queue, SIGKILL);
  Queue<int> ready({.capacity = 1});
  const Victim other = start_victim(0, [&] {
    queue.try_get();
    ready.put(1);
    pause();
  });
  ready.get();
  queue.put(1);
  EXPECT_FALSE(queue.put(2, kLookedUpOften));
  kill(other.pid, SIGKILL);
  end(other);
  EXPECT_NE(lost_peer_of([&] { queue.put(2, kPatience); }), "");
}

TEST_F(QueueConsumersTest, AnotherOneThatComesInTimeIsInTime) {
  Queue<int> queue({.capacity = 1, .no_consumer_timeout = kPatience});
  consume_once(queue, SIGKILL);
  queue.put(1);
  bool was_put = false;
  std::thread producer([&] { was_put = queue.put(2, kPatience); });
  const Victim next = start_victim(0, [&] { queue.get(); });
  producer.join();
  EXPECT_TRUE(was_put);
  end(next);
}

TEST_F(QueueConsumersTest, HowItEndedIsForgottenWithItsSlot) {
  Queue<int> queue(short_patience());
  consume_once(queue, SIGKILL);
  end(start_victim(0, [] {}));  // Takes the slot.
  queue.put(1);
  EXPECT_FALSE(queue.put(2, kLookedUpOften));
}

TEST_F(QueueConsumersTest, NobodyIsMissedWhereThatIsAskedFor) {
  Queue<int> queue({.capacity = 1, .no_consumer_timeout = std::chrono::milliseconds::max()});
  consume_once(queue, SIGKILL);
  queue.put(1);
  EXPECT_FALSE(queue.put(2, kLookedUpOften));
}

}  // namespace
}  // namespace retinue
