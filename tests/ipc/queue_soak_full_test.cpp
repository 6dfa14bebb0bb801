// A million messages through queues whose producers and consumers are killed a thousand times: each message comes once,
// or is told to be lost, and memory is as it was.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cereal/types/string.hpp>
#include <cereal/types/utility.hpp>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "ipc/sync_fixture.h"
#include "ipc/table_picture.h"
#include "retinue/ipc/queue.h"
#include "support/fork_shared.h"

namespace retinue {
namespace {

using test::is_sanitized;
using test::kPatience;
using test::wait_until;

constexpr std::uint32_t kMessages = is_sanitized() ? 50'000 : 1'000'000;
constexpr int kKills = is_sanitized() ? 60 : 1'000;
constexpr std::uint32_t kNoMessage = ~0u;

/// What became of each message, and what each process was doing, where a kill leaves it.
struct Ledger {
  enum State : std::uint8_t { kUnborn = 0, kBegun = 1, kPut = 2 };

  std::atomic<std::uint32_t> next;
  std::atomic<std::uint32_t> received;
  std::atomic<std::uint8_t> state[kMessages];
  std::atomic<std::uint8_t> seen[kMessages];
  /// By process slot: the message that it notes, or has noted, and has not said to be done.
  std::atomic<std::uint32_t> noting[kMaxProcesses];
};

/// Three ways through: words; mixed messages, of which a dead consumer's are lost; and such that come again.
enum Way : std::uint32_t { kWord = 0, kReported = 1, kRedelivered = 2, kWays = 3 };
Way way_of(std::uint32_t id) {
  return static_cast<Way>(id % kWays);
}

/// Some fit a slot, some need a payload, some refer to a block.
struct Mixed {
  std::uint32_t id = 0;
  std::string text;
  SharedBlock block;

  static Mixed of(std::uint32_t id, const std::shared_ptr<JobMemory>& memory) {
    Mixed mixed{id, std::string(id % 5 == 0 ? id % 5'000 : id % 100, static_cast<char>(id)), {}};
    if (id % 16 != 1) return mixed;
    mixed.block = SharedBlock::allocate(memory, 100 + id % 6'000);
    std::memset(mixed.block.data(), static_cast<int>(id & 0xff), mixed.block.bytes());
    return mixed;
  }
  bool is_whole() const {
    const bool has_text = text == std::string(id % 5 == 0 ? id % 5'000 : id % 100, static_cast<char>(id));
    const bool has_block = static_cast<bool>(block) == (id % 16 == 1);
    if (!block) return has_text && has_block;
    const auto byte = static_cast<std::byte>(id & 0xff);
    return has_text && has_block && block.data()[0] == byte && block.data()[block.bytes() - 1] == byte;
  }
  template <class Archive>
  void serialize(Archive& archive) {
    archive(id, text, block);
  }
};

class QueueSoak : public test::SyncTest {
 protected:
  QueueSoak() {
    for (auto& noting : ledger_->noting) noting = kNoMessage;
  }

  void note(std::uint32_t id) {
    if (id >= kMessages) throw std::runtime_error("a message that nobody sent");
    if (ledger_->seen[id].fetch_add(1) == 0xff) throw std::runtime_error("a message that comes again and again");
    ++ledger_->received;
  }
  void consume_words(Queue<std::uint32_t> queue) {
    try {
      for (;;) note(queue.get(kPatience).value());
    } catch (const Closed&) {
      // That is how it ends.
    }
  }
  void consume_mixed(Queue<Mixed> queue) {
    auto& noting = ledger_->noting[memory_->own_slot()];
    try {
      for (;;) {
        const Mixed mixed = queue.get(kPatience).value();
        if (!mixed.is_whole()) throw std::runtime_error("a message that is not what was sent");
        noting = mixed.id;
        note(mixed.id);
        queue.task_done();
        noting = kNoMessage;
      }
    } catch (const Closed&) {
      // As above.
    }
  }
  void produce() {
    for (std::uint32_t id = ledger_->next++; id < kMessages; id = ledger_->next++) {
      ledger_->state[id] = Ledger::kBegun;
      const Way way = way_of(id);
      const bool is_put = way == kWord       ? words_.put(id, kPatience)
                          : way == kReported ? reported_.put(Mixed::of(id, memory_), kPatience)
                                             : redelivered_.put(Mixed::of(id, memory_), kPatience);
      if (!is_put) throw std::runtime_error("no room came");
      ledger_->state[id] = Ledger::kPut;
    }
  }

  struct Worker {
    pid_t pid;
    std::uint32_t slot;
    int role;  ///< A Way: its consumer; kWays: a producer.
  };
  Worker start_worker(int role) {
    const std::uint32_t slot = reserve_process_slots(*memory_, 1).front();
    const auto work = [this, role] {
      if (role == kWord) return consume_words(words_);
      if (role == kReported) return consume_mixed(reported_);
      if (role == kRedelivered) return consume_mixed(redelivered_);
      produce();
    };
    return {start(work, slot), slot, role};
  }

  /// Kills it wherever it is, and puts another in its place.
  void replace(Worker& worker) {
    kill(worker.pid, SIGKILL);
    const int status = end_of(worker.pid);
    const bool had_ended = WIFEXITED(status) && worker.role == kWays;  // No more messages to put.
    EXPECT_TRUE(had_ended || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) << status;
    const std::uint32_t id = ledger_->noting[worker.slot].exchange(kNoMessage);
    if (id != kNoMessage) unsure_.insert(id);
    ++kills_[static_cast<std::size_t>(worker.role)];
    worker = start_worker(worker.role);
  }

  void check_all();

  test::ForkShared<Ledger> ledger_;
  Queue<std::uint32_t> words_{memory_, {.capacity = 256}};
  Queue<Mixed> reported_{memory_, {.capacity = 32, .joinable = true}};
  Queue<Mixed> redelivered_{
      memory_,
      {.capacity = 32, .on_consumer_death = OnConsumerDeath::kRedeliver, .joinable = true, .max_deliveries = 0}};
  std::set<std::uint32_t> unsure_;  ///< That a process was noting when it was killed.
  std::size_t kills_[kWays + 1] = {};
};

void QueueSoak::check_all() {
  std::size_t unseen[kWays] = {};
  std::size_t unsure_and_seen = 0;
  std::size_t never_begun = 0;
  for (std::uint32_t id = 0; id < kMessages; ++id) {
    const Way way = way_of(id);
    const int seen = ledger_->seen[id];
    if (ledger_->state[id] == Ledger::kUnborn) {
      ASSERT_EQ(seen, 0) << id;
      ++never_begun;
    }
    ASSERT_LE(seen, way == kRedelivered && unsure_.contains(id) ? 2 : 1) << "message " << id << " came too often";
    if (way == kReported && unsure_.contains(id) && seen == 1) ++unsure_and_seen;
    if (seen == 0 && ledger_->state[id] == Ledger::kPut) ++unseen[way];
  }
  EXPECT_LE(never_begun, kills_[kWays]);  // Killed between its number and its first note.
  // A word is gone with who took it and had not noted it.
  EXPECT_LE(unseen[kWord], kills_[kWord]);
  EXPECT_EQ(words_.lost(), 0u);
  EXPECT_EQ(unseen[kRedelivered], 0u);
  EXPECT_EQ(redelivered_.lost(), 0u);
  // Lost is what nobody noted, what a dead producer had just put, and what was noted and not said to be done.
  EXPECT_GE(reported_.lost(), unseen[kReported]);
  EXPECT_LE(reported_.lost(), unseen[kReported] + unsure_and_seen + kills_[kWays]);
  EXPECT_LE(reported_.lost(), kills_[kReported]);
  std::printf("killed: %zu producers, %zu + %zu + %zu consumers; %zu words and %zu messages lost, %zu told\n",
              kills_[kWays], kills_[kWord], kills_[kReported], kills_[kRedelivered], unseen[kWord], unseen[kReported],
              static_cast<std::size_t>(reported_.lost()));
}

TEST_F(QueueSoak, AMillionMessagesAndAThousandKills) {
  const char* const given = std::getenv("RETINUE_SOAK_SEED");
  const unsigned seed =
      given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : std::random_device{}();
  std::printf("RETINUE_SOAK_SEED=%u\n", seed);
  std::mt19937 random(seed);
  const test::Picture before = test::look_at_tables(*memory_);
  std::vector<Worker> workers;
  for (const int role : {kWord, kReported, kRedelivered, kWays, kWays, kWord, kReported, kRedelivered, kWays})
    workers.push_back(start_worker(role));
  for (int killed = 0; killed < kKills; ++killed) {
    const auto due =
        static_cast<std::uint32_t>(std::uint64_t{kMessages} * 9 / 10 * static_cast<unsigned>(killed) / kKills);
    ASSERT_TRUE(wait_until([&] { return ledger_->received >= due; })) << "nothing went on, at kill " << killed;
    for (unsigned spins = random() % 100'000; spins > 0; --spins) std::atomic_signal_fence(std::memory_order_seq_cst);
    replace(workers[random() % workers.size()]);
    ASSERT_FALSE(HasFailure());
  }
  for (const Worker& worker : workers) EXPECT_TRUE(worker.role != kWays || end_of(worker.pid) == 0);
  EXPECT_TRUE(reported_.join(kPatience) && redelivered_.join(kPatience));
  words_.close();
  reported_.close();
  redelivered_.close();
  for (const Worker& worker : workers) EXPECT_TRUE(worker.role == kWays || end_of(worker.pid) == 0);
  check_all();
  test::Picture after = test::look_at_tables(*memory_);
  EXPECT_EQ(after, before);
}

}  // namespace
}  // namespace retinue
