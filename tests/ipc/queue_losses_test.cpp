// Messages whose consumers die: who may get them again, how often, and what is said of those that nobody gets any more.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cereal/types/string.hpp>
#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ipc/crash_fixture.h"
#include "os/files/file_descriptor.h"
#include "retinue/ipc/pipe.h"
#include "retinue/ipc/queue.h"
#include "support/captured_stderr.h"
#include "support/says.h"
#include "support/usage_error.h"

namespace retinue {

namespace {

using namespace std::chrono_literals;

using test::kPatience;

class QueueLossesTest : public CrashTest {
 protected:
  /// A consumer dies with the next message in hand; its pid.
  template <class T>
  int die_with_one(Queue<T>& queue) {
    const Victim victim = start_victim(0, [&] {
      queue.get();
      kill(getpid(), SIGKILL);
    });
    EXPECT_FALSE(bury(victim));
    return victim.pid;
  }
};

QueueOptions tasks(std::uint32_t most, const QueueBase& dead_letters = {}) {
  return {.capacity = 4,
          .on_consumer_death = OnConsumerDeath::kRedeliver,
          .joinable = true,
          .max_deliveries = most,
          .dead_letters = dead_letters};
}

/// Another consumer has its slot before anybody looks.
TEST_F(QueueLossesTest, SaysWhoDiedWithItAlsoWhenItsSlotIsAnothers) {
  Queue<int> queue({.capacity = 4, .joinable = true});
  queue.put(1);
  const int pid = die_with_one(queue);
  EXPECT_TRUE(run_victim(0, [&] { queue.try_get(); }));
  EXPECT_TRUE(queue.join(kPatience));
  ASSERT_EQ(queue.lost_messages().size(), 1u);
  EXPECT_EQ(queue.lost_messages()[0].consumer_pid, pid);
}

TEST_F(QueueLossesTest, IsAskedWithoutAWait) {
  for (const bool for_messages : {false, true}) {
    Queue<int> queue({.capacity = 4, .joinable = true});
    queue.put(1);
    die_with_one(queue);
    EXPECT_EQ(for_messages ? queue.lost_messages().size() : queue.lost(), 1u);
  }
}

/// A fork has no hold of its own: its copy of a queue that is gone names memory that is something else by now.
TEST_F(QueueLossesTest, AForkLeavesAloneWhatIsAnothersByNow) {
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  std::optional<Queue<int>> queue(std::in_place, QueueOptions{.capacity = 4});
  const BlockHandle gone = detail::encode_value(*queue).references.at(0).handle();
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    if (read(go[0], &byte, 1) == 1) queue.reset();
    _exit(0);
  }
  queue.reset();
  const SharedBlock other = SharedBlock::allocate(memory_, gone.bytes);
  ASSERT_EQ(other.handle().offset, gone.offset) << "the test shows nothing";
  const auto words = reinterpret_cast<std::uint64_t*>(other.data());
  const std::size_t count = other.bytes() / sizeof(std::uint64_t);
  for (std::size_t i = 0; i < count; ++i) words[i] = i % 2 == 0 ? ~std::uint64_t{0} : 0;  // As of untold losses.
  const std::vector<std::uint64_t> before(words, words + count);
  ASSERT_EQ(write(go[1], "g", 1), 1);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(std::vector<std::uint64_t>(words, words + count), before);
  close(go[0]);
  close(go[1]);
}

TEST_F(QueueLossesTest, SaysWhichMessageWasLost) {
  Queue<std::string> queue({.capacity = 4, .joinable = true});
  queue.put("first");
  EXPECT_EQ(queue.get(), "first");
  queue.task_done();
  const std::string text = "poison " + std::string(1000, 'p');
  queue.put(text);
  const int pid = die_with_one(queue);
  EXPECT_TRUE(queue.join(kPatience));
  EXPECT_EQ(queue.lost(), 1u);
  const std::vector<LostMessage> lost = queue.lost_messages();
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].number, 2u);
  EXPECT_EQ(lost[0].bytes, text.size());
  EXPECT_EQ(lost[0].beginning, text.substr(0, 64));
  EXPECT_EQ(lost[0].deliveries, 1u);
  EXPECT_EQ(lost[0].consumer_pid, pid);
  EXPECT_EQ(lost[0].consumer_rank, -1);
  EXPECT_EQ(lost[0].reason, LostMessage::Reason::kConsumerDied);
}

/// What `body` writes to standard error.
std::string said_by(const std::function<void()>& body) {
  const FileDescriptor before(dup(STDERR_FILENO));
  const test::CapturedStderr captured;
  captured.begin();
  body();
  dup2(before.get(), STDERR_FILENO);
  return captured.text();
}

TEST_F(QueueLossesTest, SaysItOnStandardErrorOnce) {
  int first = 0;
  int second = 0;
  const std::string said = said_by([&] {
    Queue<std::string> queue({.capacity = 4, .joinable = true});
    queue.put("hello");
    first = die_with_one(queue);
    EXPECT_TRUE(queue.join(kPatience));
    queue.put(std::string("\x01\x02", 2));
    second = die_with_one(queue);
    EXPECT_TRUE(queue.join(kPatience));
  });
  EXPECT_EQ(said, "retinue: a queue of capacity 4 lost message 1 (5 bytes: \"hello\"): process " +
                      std::to_string(first) + " ended while it held the message\n" +
                      "retinue: a queue of capacity 4 lost message 2 (2 bytes: 01 02): process " +
                      std::to_string(second) + " ended while it held the message\n");
}

TEST_F(QueueLossesTest, SaysOnlyTheFirstTen) {
  const std::string said = said_by([&] {
    Queue<int> queue({.capacity = 64, .joinable = true});
    for (int i = 0; i < 12; ++i) queue.put(i);
    bury(start_victim(0, [&] {
      while (queue.try_get()) continue;
    }));
    EXPECT_TRUE(queue.join(kPatience));
  });
  EXPECT_EQ(test::count_of(said, "ended while it held the message\n"), 10) << said;
  EXPECT_EQ(test::count_of(said, "not reported; lost() counts them\n"), 1) << said;
}

TEST_F(QueueLossesTest, KeepsTheNewest) {
  Queue<int> queue({.capacity = 64, .joinable = true});
  for (int i = 0; i < 40; ++i) queue.put(i);
  bury(start_victim(0, [&] {
    while (queue.try_get()) continue;
  }));
  EXPECT_TRUE(queue.join(kPatience));
  EXPECT_EQ(queue.lost(), 40u);
  const std::vector<LostMessage> lost = queue.lost_messages();
  ASSERT_EQ(lost.size(), 16u);
  for (std::size_t i = 0; i < lost.size(); ++i) EXPECT_EQ(lost[i].number, 25 + i);
  EXPECT_EQ(lost[0].beginning, std::string("\x18\0\0\0\0\0\0\0", 8));
}

TEST_F(QueueLossesTest, IsDeliveredSoOften) {
  for (const std::uint32_t most : {1u, 2u, 3u}) {
    Queue<int> queue(tasks(most));
    queue.put(5);
    for (std::uint32_t i = 0; i < most; ++i) {
      EXPECT_EQ(queue.lost(), 0u);
      die_with_one(queue);
    }
    EXPECT_TRUE(queue.join(kPatience)) << "it comes again and again";
    ASSERT_EQ(queue.lost_messages().size(), 1u);
    EXPECT_EQ(queue.lost_messages()[0].deliveries, most);
    EXPECT_EQ(queue.lost_messages()[0].reason, LostMessage::Reason::kMaxDeliveries);
  }
  EXPECT_EQ(QueueOptions().max_deliveries, 3u);
}

TEST_F(QueueLossesTest, IsDeliveredWithoutALimitWhereItIsAskedFor) {
  Queue<std::string> queue(tasks(0));
  queue.put("again");
  for (int i = 0; i < 12; ++i) die_with_one(queue);
  EXPECT_EQ(queue.get(), "again");
  queue.task_done();
  EXPECT_EQ(queue.lost(), 0u);
}

/// A slot's count is that of its message, and not of one that was there a lap before.
TEST_F(QueueLossesTest, EachMessageHasACountOfItsOwn) {
  Queue<int> queue(
      {.capacity = 1, .on_consumer_death = OnConsumerDeath::kRedeliver, .joinable = true, .max_deliveries = 2});
  for (int i = 0; i < 3; ++i) {
    queue.put(i);
    die_with_one(queue);
    EXPECT_EQ(queue.get(kPatience), i);
    queue.task_done();
  }
  EXPECT_EQ(queue.lost(), 0u);
}

template <class T>
void move_to_dead_letters(QueueLossesTest&, const std::function<void(Queue<T>&)>& die, const T& poison, const T& fine) {
  Queue<T> letters({.capacity = 2});
  Queue<T> queue(tasks(2, letters));
  queue.put(poison);
  for (int i = 0; i < 2; ++i) die(queue);
  EXPECT_TRUE(queue.join(kPatience));
  EXPECT_EQ(queue.lost(), 0u);
  queue.put(fine);
  EXPECT_EQ(queue.get(kPatience), fine);
  queue.task_done();
  EXPECT_EQ(letters.get(kPatience), poison);
  EXPECT_FALSE(letters.try_get().has_value());
}

TEST_F(QueueLossesTest, GoesToTheDeadLetterQueue) {
  move_to_dead_letters<int>(
      *this, [this](Queue<int>& queue) { die_with_one(queue); }, 7, 8);
  for (const std::size_t size : {5u, 5000u})
    move_to_dead_letters<std::string>(
        *this, [this](Queue<std::string>& queue) { die_with_one(queue); }, std::string(size, 'p'), "fine");
}

TEST_F(QueueLossesTest, WakesWhoWaitsForDeadLetters) {
  Queue<int> letters({.capacity = 2});
  Queue<int> queue(tasks(1, letters));
  const Victim reader = start_victim(0, [&] { _exit(letters.get(kPatience) == 7 ? 0 : 1); });
  queue.put(7);
  die_with_one(queue);
  EXPECT_TRUE(queue.join(kPatience));
  int status = 0;
  ASSERT_EQ(waitpid(reader.pid, &status, 0), reader.pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  process_slot(*memory_, reader.slot).state.store(ProcessState::kDead);
  free_process_slot(*memory_, reader.slot);
}

TEST_F(QueueLossesTest, IsLostWhereTheDeadLetterQueueTakesNothing) {
  Queue<int> letters({.capacity = 1});
  Queue<int> queue(tasks(1, letters));
  letters.put(1);
  queue.put(2);
  die_with_one(queue);
  EXPECT_TRUE(queue.join(kPatience)) << "nobody may wait for room there";
  EXPECT_EQ(letters.get(), 1);
  letters.close();
  queue.put(3);
  die_with_one(queue);
  EXPECT_TRUE(queue.join(kPatience));
  const std::vector<LostMessage> lost = queue.lost_messages();
  ASSERT_EQ(lost.size(), 2u);
  EXPECT_EQ(lost[0].reason, LostMessage::Reason::kDeadLettersFull);
  EXPECT_EQ(lost[1].reason, LostMessage::Reason::kDeadLettersClosed);
}

TEST_F(QueueLossesTest, TheDeadLetterQueueLivesWithTheOther) {
  Queue<std::string> queue(tasks(1, Queue<std::string>({.capacity = 2})));
  queue.put("poison");
  die_with_one(queue);
  EXPECT_TRUE(queue.join(kPatience));
  EXPECT_EQ(queue.lost(), 0u);
}

TEST_F(QueueLossesTest, ADeadLetterQueueMayHaveOneOfItsOwn) {
  Queue<int> last({.capacity = 2});
  Queue<int> letters(tasks(1, last));
  Queue<int> queue(tasks(1, letters));
  queue.put(7);
  die_with_one(queue);
  EXPECT_TRUE(queue.join(kPatience));
  die_with_one(letters);
  EXPECT_TRUE(letters.join(kPatience));
  EXPECT_EQ(last.get(kPatience), 7);
}

TEST_F(QueueLossesTest, RefusesDeadLetterQueuesThatCannotBe) {
  const Queue<int> of_ints({.capacity = 2});
  using Text = Queue<std::string>;
  EXPECT_TRUE(test::usage_error_of([&] { Text(tasks(1, of_ints)); }).find("same message type") != std::string::npos);
  const Text small({.capacity = 2, .message_bytes = 32});
  EXPECT_TRUE(test::usage_error_of([&] { Text(tasks(1, small)); }).find("message_bytes") != std::string::npos);
  const Text letters({.capacity = 2});
  EXPECT_THROW(Text({.capacity = 2, .dead_letters = letters}), UsageError);
  EXPECT_THROW(Text(tasks(0, letters)), UsageError);
  EXPECT_NE(test::usage_error_of([&] { Text({.capacity = 2, .max_deliveries = 5}); }).find("kRedeliver"),
            std::string::npos);
  EXPECT_THROW(Text({.capacity = 2, .no_consumer_timeout = -1ms}), UsageError);
}

TEST_F(QueueLossesTest, PipesSayItToo) {
  auto [here, there] = Pipe<std::string>::create();
  here.send("lost");
  const Victim victim = start_victim(0, [&there = there] {
    try {
      detail::Encoded encoded = detail::encode_value(there);
      auto end = detail::PipeEnd::open(encoded.references.at(0), detail::type_hash<std::string>());
      end->receive(0ns, [](std::span<const std::byte>) { kill(getpid(), SIGKILL); });
    } catch (const Error&) {
      _exit(1);
    }
  });
  EXPECT_FALSE(bury(victim));
  EXPECT_FALSE(there.recv(100ms).has_value());
  ASSERT_EQ(there.lost_messages().size(), 1u);
  EXPECT_EQ(there.lost_messages()[0].beginning, "lost");
}

}  // namespace
}  // namespace retinue
