#include "retinue/ipc/shared_block.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cereal/types/map.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ipc/memory/job_layout.h"
#include "ipc/memory/payload.h"
#include "ipc/sync_fixture.h"
#include "retinue/base/error.h"
#include "retinue/ipc/archive.h"
#include "retinue/ipc/shared_value.h"
#include "support/job_test.h"

using retinue::Array;
using retinue::BlockHandle;
using retinue::JobMemory;
using retinue::RLock;
using retinue::SharedBlock;
using retinue::UsageError;
using retinue::Value;
using retinue::test::is_sanitized;
using retinue::test::kPatience;
using retinue::test::wait_until;

namespace {

constexpr std::uint32_t kOther = 5;

class SharedBlockTest : public retinue::test::JobTest {
 protected:
  std::size_t allocated() const { return memory_->allocated_bytes(); }

  /// Runs `body` in a child that has a slot of its own; returns its wait() status.
  template <class Body>
  int in_child(Body body) {
    memory_->retain_holds_for(kOther);
    const pid_t pid = fork();
    if (pid == 0) {
      enter_process_slot(*memory_, kOther);
      body();
      _exit(0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return status;
  }
};

TEST_F(SharedBlockTest, CopiesAreOneBlockThatTheLastOneFrees) {
  SharedBlock first = SharedBlock::allocate(100);
  const SharedBlock second = first;
  EXPECT_EQ(first, second);
  EXPECT_EQ(second.bytes(), 100u);
  first = SharedBlock();
  EXPECT_FALSE(first);
  EXPECT_NE(allocated(), 0u);
  std::memset(second.data(), 1, second.bytes());
  SharedBlock again = SharedBlock::hold(memory_, second.handle());
  EXPECT_EQ(again, second);
}

TEST_F(SharedBlockTest, NothingIsLeftOfBlocksThatWentOutOfScope) {
  {
    const SharedBlock block = SharedBlock::allocate(100);
    const std::vector<SharedBlock> copies(5, SharedBlock::hold(memory_, block.handle()));
  }
  EXPECT_EQ(allocated(), 0u);
}

TEST_F(SharedBlockTest, APayloadHoldsWhatItsBytesReferTo) {
  std::map<std::string, std::vector<SharedBlock>> sent;
  sent["a"] = {SharedBlock::allocate(10), SharedBlock()};
  sent["b"] = {sent["a"][0]};
  sent["a"][0].data()[3] = std::byte{7};
  retinue::detail::Encoded encoded = retinue::detail::encode_value(sent);
  const BlockHandle payload = retinue::store_payload(*memory_, {encoded.bytes}, encoded.references);
  sent.clear();
  encoded = {};
  EXPECT_EQ(memory_->carried_by(payload).size(), 1u) << "the same block twice";

  std::map<std::string, std::vector<SharedBlock>> received;
  retinue::detail::decode_value(retinue::payload_bytes(*memory_, payload), received);
  memory_->release(payload);
  ASSERT_EQ(received["a"].size(), 2u);
  EXPECT_EQ(received["a"][0].data()[3], std::byte{7});
  EXPECT_FALSE(received["a"][1]);
  EXPECT_EQ(received["a"][0], received["b"][0]);
  received.clear();
  EXPECT_EQ(allocated(), 0u);
}

TEST_F(SharedBlockTest, PayloadsInPayloadsAreFreedTogether) {
  SharedBlock inner = SharedBlock::allocate(10);
  const BlockHandle first = retinue::store_payload(*memory_, {"first"}, {inner});
  inner = SharedBlock();
  SharedBlock between = SharedBlock::hold(memory_, first);
  const BlockHandle second = retinue::store_payload(*memory_, {"second"}, {between});
  between = SharedBlock();
  memory_->release(first);
  EXPECT_EQ(retinue::payload_bytes(*memory_, second), "second");
  EXPECT_EQ(allocated(), 3u * 4096);
  memory_->release(second);
  EXPECT_EQ(allocated(), 0u);
}

TEST_F(SharedBlockTest, AHolderFreesWhatWasHandedOverToIt) {
  const BlockHandle ring = memory_->allocate(1);
  const BlockHandle message = memory_->allocate(1);
  const BlockHandle other = memory_->allocate(1);
  memory_->hand_over(message, ring);
  memory_->hand_over(other, ring);
  EXPECT_TRUE(memory_->take_from_holder(other, ring));
  EXPECT_FALSE(memory_->take_from_holder(other, ring));
  EXPECT_EQ(allocated(), 2u * 4096);
  EXPECT_THROW(memory_->hand_over(message, ring), retinue::UsageError);
  memory_->release(ring);
  EXPECT_EQ(allocated(), 0u);
}

TEST_F(SharedBlockTest, AHandleOfABlockThatIsGoneNamesNoOther) {
  SharedBlock block = SharedBlock::allocate(64);
  const retinue::detail::Encoded encoded = {retinue::detail::encode_value(block).bytes, {}};
  const BlockHandle old = block.handle();
  block = SharedBlock();
  block = SharedBlock::allocate(64);
  EXPECT_EQ(block.handle().offset, old.offset);
  SharedBlock received;
  EXPECT_THROW(retinue::detail::decode_value(encoded.bytes, received), retinue::UsageError);
  BlockHandle wrong = block.handle();
  wrong.bytes = std::size_t{1} << 40;
  EXPECT_THROW(SharedBlock::hold(memory_, wrong), retinue::UsageError);
  wrong = block.handle();
  wrong.index = 0xfffffff0u;
  EXPECT_THROW(SharedBlock::hold(memory_, wrong), retinue::UsageError);
}

TEST_F(SharedBlockTest, AForkHoldsWhatItsParentHeld) {
  SharedBlock block = SharedBlock::allocate(64);
  EXPECT_EQ(in_child([&] {
              SharedBlock copy = block;
              copy = SharedBlock();
            }),
            0);
  const BlockHandle handle = block.handle();
  block = SharedBlock();
  EXPECT_NE(allocated(), 0u) << "the child never let go";
  memory_->release_all(kOther);
  EXPECT_EQ(allocated(), 0u);
  EXPECT_THROW(SharedBlock::hold(memory_, handle), retinue::UsageError);
}

TEST_F(SharedBlockTest, AForkBehindRetinuesBackLetsNothingGo) {
  auto block = std::make_unique<SharedBlock>(SharedBlock::allocate(64));
  const pid_t pid = fork();
  if (pid == 0) {
    block.reset();
    _exit(0);
  }
  waitpid(pid, nullptr, 0);
  EXPECT_NO_THROW(SharedBlock::hold(memory_, block->handle()));
}

TEST_F(SharedBlockTest, WhatAKilledProcessSentLivesAndWhatItHeldDoesNot) {
  const BlockHandle ring = memory_->allocate(1);
  const int status = in_child([&] {
    const SharedBlock mine = SharedBlock::allocate(64);
    memory_->hand_over(retinue::store_payload(*memory_, {"sent"}, {mine}), ring);
    const SharedBlock unsent = SharedBlock::allocate(1 << 20);
    static_cast<void>(retinue::store_payload(*memory_, {"not sent"}, {unsent}));
    raise(SIGKILL);
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  memory_->release_all(kOther);
  EXPECT_EQ(allocated(), 3u * 4096) << "ring, payload and block";
  memory_->release(ring);
  EXPECT_EQ(allocated(), 0u);
}

/// Whatever a holder of the table's lock had half done when it was killed: counts follow from the descriptors.
TEST_F(SharedBlockTest, CountsAreMadeAgainAfterADeathInTheTable) {
  SharedBlock block = SharedBlock::allocate(64);
  const BlockHandle payload = retinue::store_payload(*memory_, {"message"}, {block});
  const BlockHandle ring = memory_->allocate(1);
  memory_->hand_over(payload, ring);
  const int status = in_child([&] {
    retinue::BlockTable& table = memory_->header().blocks;
    static_cast<void>(table.mutex.lock(std::chrono::seconds(1)));
    table.descriptors[block.handle().index].references = 77;
    table.descriptors[ring.index].held_count = 0;
    raise(SIGKILL);
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  memory_->release_all(kOther);
  block = SharedBlock();
  EXPECT_EQ(allocated(), 3u * 4096);
  memory_->release(ring);
  EXPECT_EQ(allocated(), 0u);
}

TEST(Archive, ReadsBackWhatItWroteAndRefusesWhatEndsTooEarly) {
  const std::map<std::string, std::vector<double>> value = {{"a", {1, 2}}, {"", {}}};
  const retinue::detail::Encoded encoded = retinue::detail::encode_value(value);
  std::map<std::string, std::vector<double>> back;
  retinue::detail::decode_value(encoded.bytes, back);
  EXPECT_EQ(back, value);
  for (std::size_t bytes = 0; bytes < encoded.bytes.size(); ++bytes) {
    std::map<std::string, std::vector<double>> part;
    EXPECT_ANY_THROW(retinue::detail::decode_value(std::string_view(encoded.bytes).substr(0, bytes), part)) << bytes;
  }
  std::vector<std::string> many;
  EXPECT_ANY_THROW(retinue::detail::decode_value(std::string(8, '\x7f'), many)) << "a length beyond all bytes";
}

class SharedValueTest : public retinue::test::SyncTest {};

struct Reading {
  int id;
  double values[3];
};

TEST_F(SharedValueTest, ValuesAreSharedWithTheirLocks) {
  Value<Reading> sample({7, {1, 2, 3}});
  EXPECT_EQ(sample.get().values[2], 3);
  EXPECT_EQ(sample.update([](Reading& s) { return ++s.id; }), 8);
  Array<int> row{5, 6, 7};
  EXPECT_EQ(row.size(), 3u);
  row.set(1, 60);
  EXPECT_EQ(row.values(), (std::vector<int>{5, 60, 7}));
  EXPECT_THROW(row.get(3), UsageError);
  EXPECT_EQ(Array<double>(1000).get(999), 0.0);
  EXPECT_EQ(Array<char>(0).values().size(), 0u);
  EXPECT_THROW(Array<int>(std::size_t{1} << 62), retinue::SharedMemoryExhausted);
  EXPECT_THROW(Value<int>().get(), UsageError);
  const pid_t holder = start([&] {
    row.get_lock().acquire();
    row[0] = 1;
    raise(SIGKILL);
  });
  end_of(holder);
  row.update([&](std::span<int> all) {
    EXPECT_TRUE(row.get_lock().owner_died());
    EXPECT_EQ(all[0], 1);
  });
}

/// Whatever instruction it is: two words are equal under the lock, unless it says that its holder died.
TEST_F(SharedValueTest, AHolderIsKilledAnywhere) {
  RLock lock = RLock::create();
  Array<std::uint64_t> words(2, lock);
  std::mt19937 random(7);
  int died = 0;
  for (int round = 0; round < (is_sanitized() ? 6 : 15); ++round) {
    std::vector<pid_t> victims;
    for (int i = 0; i < 2; ++i)
      victims.push_back(start([&] {
        for (;;)
          words.update([](std::span<std::uint64_t> both) {
            ++both[0];
            std::atomic_signal_fence(std::memory_order_seq_cst);  // The compiler may not do both at once.
            ++both[1];
          });
      }));
    const std::uint64_t before = words.get(0);
    ASSERT_TRUE(wait_until([&] { return words.get(0) > before + random() % 100; }));
    for (const pid_t victim : victims) kill(victim, SIGKILL);
    for (const pid_t victim : victims) EXPECT_TRUE(WIFSIGNALED(end_of(victim)));
    ASSERT_TRUE(lock.acquire(kPatience));
    if (lock.owner_died()) {
      ++died;
      EXPECT_LE(words[0] - words[1], 1u);
      words[1] = words[0];
    }
    EXPECT_EQ(words[0], words[1]);
    lock.release();
  }
  RecordProperty("holders_killed", died);
}

}  // namespace
