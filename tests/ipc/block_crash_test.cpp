// A process is killed at each point of everything that changes the tables of blocks, processes and contexts; the
// survivors go on, and everything is as free as it was. The sources are compiled here once more, with these points.
#define RETINUE_CRASH_POINTS
#include "ipc/memory/block_owners.cpp"   // NOLINT(bugprone-suspicious-include)
#include "ipc/memory/block_table.cpp"    // NOLINT(bugprone-suspicious-include)
#include "ipc/memory/context_table.cpp"  // NOLINT(bugprone-suspicious-include)
#include "ipc/memory/locked_blocks.cpp"  // NOLINT(bugprone-suspicious-include)
#include "ipc/memory/payload.cpp"        // NOLINT(bugprone-suspicious-include)
#include "ipc/memory/process_table.cpp"  // NOLINT(bugprone-suspicious-include)

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "ipc/block_crash_fixture.h"

namespace retinue {
namespace {

using test::BlockCrashTest;
using test::look_at_tables;
using test::Picture;
using test::reserved_slots;

TEST_F(BlockCrashTest, WhoAllocatesAndFreesIsKilledAnywhere) {
  const SharedBlock low = SharedBlock::allocate(memory_, 9'000);
  SharedBlock gap = SharedBlock::allocate(memory_, 9'000);
  const SharedBlock high = SharedBlock::allocate(memory_, 9'000);
  gap = SharedBlock();
  EXPECT_GE(sweep([this] {
              SharedBlock first = SharedBlock::allocate(memory_, 5'000);
              const SharedBlock second = SharedBlock::allocate(memory_, 200'000);
              first = SharedBlock();
              const SharedBlock third = SharedBlock::allocate(memory_, 1);
            }),
            25);
}

TEST_F(BlockCrashTest, WhoNeedsNewMemoryIsKilledAnywhere) {
  // Each victim reaches further than those before it: its memory is not there yet.
  std::size_t bytes = 100'000;
  EXPECT_GE(sweep([&] { SharedBlock::allocate(memory_, bytes); }, [&] { bytes += 150'000; }), 8);
}

/// The kernel may take long to find memory.
TEST_F(BlockCrashTest, WhoWaitsForNewMemoryHoldsUpOnlyWhoNeedsSomeToo) {
  const auto patience = memory_->lock_patience();
  const SharedBlock ours = SharedBlock::allocate(memory_, 5'000);
  use_blocks();  // From now on there is memory for that.
  stops = true;
  const Victim victim = start_victim(*memory_, 1, [this] { SharedBlock::allocate(memory_, 8 << 20); });
  stops = false;
  int status = 0;
  ASSERT_EQ(waitpid(victim.pid, &status, WUNTRACED), victim.pid);
  ASSERT_TRUE(WIFSTOPPED(status));
  memory_->set_lock_patience(std::chrono::milliseconds(10));
  try {
    SharedBlock::allocate(memory_, 8 << 20);
    ADD_FAILURE() << "the victim is at it";
  } catch (const TimeoutError& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(victim.pid)), std::string::npos) << error.what();
  }
  memory_->set_lock_patience(patience);
  use_blocks();
  EXPECT_TRUE(memory_->find(ours.data()));
  kill(victim.pid, SIGKILL);
  ASSERT_EQ(waitpid(victim.pid, &status, 0), victim.pid);
  clear_up_after(victim.slot);
  EXPECT_EQ(SharedBlock::allocate(memory_, 8 << 20).bytes(), std::size_t{8} << 20);
}

TEST_F(BlockCrashTest, WhoHoldsAndLetsGoIsKilledAnywhere) {
  SharedBlock ours = SharedBlock::allocate(memory_, 5'000);
  const BlockHandle other = ours.handle();
  const SharedBlock message = SharedBlock::hold(memory_, store_payload(*memory_, {"in a message"}, {ours}));
  memory_->release(message.handle());
  ours = SharedBlock();  // What a process holds already it holds once more without the table.
  EXPECT_GE(sweep(
                [&] {
                  const SharedBlock held = SharedBlock::hold(memory_, other);
                  memory_->retain(other, kGuardianSlot);
                  memory_->release(other, kGuardianSlot);
                },
                [&] {
                  memory_->retain(other, kGuardianSlot);  // Both ends of what may be half done.
                  memory_->release(other, kGuardianSlot);
                }),
            4);
}

TEST_F(BlockCrashTest, WhoUsesReferenceListsIsKilledAnywhere) {
  SharedBlock lists = SharedBlock::allocate(memory_, 1'000);
  std::fill_n(lists.data(), lists.bytes(), std::byte{0});
  memory_->set_reference_lists(lists.handle(), {.first = 64, .stride = 128, .count = 3, .capacity = 2});
  const SharedBlock ours = SharedBlock::allocate(memory_, 100);
  const std::atomic<std::uint64_t> word = 5;
  EXPECT_GE(sweep(
                [&] {
                  SharedBlock own = SharedBlock::allocate(memory_, 100);
                  memory_->set_references(lists.handle(), 1, std::vector{ours.handle(), own.handle()});
                  own = SharedBlock();
                  memory_->clear_references(lists.handle(), 1, word, 4);
                  memory_->set_references(lists.handle(), 1, std::vector{ours.handle()});  // The own one goes with it.
                  memory_->clear_references(lists.handle(), 1, word, 5);
                  memory_->set_references(lists.handle(), 2, std::vector{ours.handle(), ours.handle()});
                },
                [&] {
                  for (const std::uint32_t list : {1u, 2u}) memory_->clear_references(lists.handle(), list, word, 5);
                }),
            15);
  memory_->set_references(lists.handle(), 0, std::vector{ours.handle()});
  EXPECT_EQ(look_at_tables(*memory_).blocks.at(ours.handle().index).references, 1u);
  EXPECT_THROW(memory_->set_references(lists.handle(), 3, {}), UsageError);
  EXPECT_THROW(memory_->set_references(lists.handle(), 0, std::vector(3, ours.handle())), UsageError);
  lists = SharedBlock();
  EXPECT_EQ(look_at_tables(*memory_).blocks.at(ours.handle().index).references, 0u);
}

TEST_F(BlockCrashTest, WhoMakesAndFreesPayloadsIsKilledAnywhere) {
  const SharedBlock ours = SharedBlock::allocate(memory_, 100);
  EXPECT_GE(sweep([&] {
              const SharedBlock own = SharedBlock::allocate(memory_, 100);
              const BlockHandle inner = store_payload(*memory_, {"inner"}, {ours, own});
              SharedBlock between = SharedBlock::hold(memory_, inner);
              const BlockHandle outer = store_payload(*memory_, {"outer"}, {between, ours});
              memory_->release(inner);
              between = SharedBlock();
              memory_->release(outer);
            }),
            40);
}

TEST_F(BlockCrashTest, WhoHandsOverAndTakesIsKilledAnywhere) {
  const SharedBlock ring = SharedBlock::allocate(memory_, 100);
  const SharedBlock ours = SharedBlock::allocate(memory_, 100);
  // What came to the ring is its own from then on, whoever died: a receiver empties it.
  const auto empty_ring = [&] {
    std::vector<BlockHandle> held;
    {
      const LockedBlocks locked(*memory_);
      const BlockTable& table = locked.table();
      for (std::uint32_t i = 0; i < table.descriptor_end; ++i) {
        const BlockDescriptor& block = table.descriptors[i];
        if (block.used.load() == 0 || block.holder != ring.handle().index + 1) continue;
        held.push_back({block.generation, i, table.data_offset + block.first_page * table.page_bytes, block.bytes});
      }
    }
    for (const BlockHandle& payload : held) {
      EXPECT_EQ(payload_references(memory_, payload).size(), 2u) << "it came without what it refers to";
      EXPECT_TRUE(memory_->take_from_holder(payload, ring.handle()));
    }
  };
  const auto send = [&] {
    const SharedBlock own = SharedBlock::allocate(memory_, 100);
    const BlockHandle payload = store_payload(*memory_, {"message"}, {ours, own});
    memory_->hand_over(payload, ring.handle());
    return payload;
  };
  EXPECT_GE(sweep(send, empty_ring), 20);
  EXPECT_GE(sweep(
                [&] {
                  const BlockHandle payload = send();
                  SharedBlock::hold(memory_, payload);
                  memory_->take_from_holder(payload, ring.handle());
                },
                empty_ring),
            30);
}

TEST_F(BlockCrashTest, TheLastOwnerOfATreeIsKilledAnywhere) {
  // The victim alone holds a ring with payloads that carry payloads: all of it goes when it lets go, or dies with it.
  EXPECT_GE(sweep([&] {
              const BlockHandle ring = memory_->allocate(100);
              for (int i = 0; i < 2; ++i) {
                const SharedBlock own = SharedBlock::allocate(memory_, 100);
                memory_->hand_over(store_payload(*memory_, {"message"}, {own}), ring);
              }
              memory_->release(ring);
            }),
            50);
}

TEST_F(BlockCrashTest, WhoRepairsIsKilledAnywhere) {
  const SharedBlock ring = SharedBlock::allocate(memory_, 100);
  const SharedBlock ours = SharedBlock::allocate(memory_, 100);
  memory_->hand_over(store_payload(*memory_, {"message"}, {ours}), ring.handle());
  const Picture before = look_at_tables(*memory_);
  const auto die_in_the_table = [&] {
    const SharedBlock own = SharedBlock::allocate(memory_, 100);
    static_cast<void>(store_payload(*memory_, {"unsent"}, {own, ours}));
    const LockedBlocks locked(*memory_);
    for (std::uint32_t i = 0; i < locked.table().descriptor_end; ++i) {
      locked.table().descriptors[i].references += 7;
      locked.table().descriptors[i].held_count = 3;
    }
    std::fill_n(locked.page_map(), locked.table().end_page, 1u);
    raise(SIGKILL);
  };
  for (long point = 1, has_ended = 0; has_ended == 0; ++point) {
    SCOPED_TRACE("point " + std::to_string(point));
    int status = 0;
    const std::uint32_t broken = run_victim(0, die_in_the_table, status);
    const std::uint32_t repairer = run_victim(
        point, [this] { use_blocks(); }, status);
    use_blocks();
    clear_up_after(repairer);
    clear_up_after(broken);
    EXPECT_EQ(look_at_tables(*memory_), before);
    has_ended = WIFEXITED(status) || HasFailure() ? 1 : 0;
    EXPECT_TRUE(has_ended == 0 || point >= 25) << point;
  }
}

TEST_F(BlockCrashTest, WhoClearsUpAfterTheDeadIsKilledAnywhere) {
  const SharedBlock ours = SharedBlock::allocate(memory_, 100);
  const Picture before = look_at_tables(*memory_);
  for (long point = 1, has_ended = 0; has_ended == 0; ++point) {
    SCOPED_TRACE("point " + std::to_string(point));
    int status = 0;
    const std::uint32_t dead = run_victim(
        0,
        [&] {
          const SharedBlock own = SharedBlock::allocate(memory_, 100);
          static_cast<void>(store_payload(*memory_, {"unsent"}, {own, ours}));
          raise(SIGKILL);
        },
        status);
    const std::uint32_t second = run_victim(
        point, [&] { memory_->release_all(dead); }, status);
    clear_up_after(second);
    clear_up_after(dead);
    EXPECT_EQ(look_at_tables(*memory_), before);
    has_ended = WIFEXITED(status) || HasFailure() ? 1 : 0;
    EXPECT_TRUE(has_ended == 0 || point >= 8) << point;
  }
}

/// A rank that starts others is killed between the reservation of their context and the request, or while it frees it.
TEST_F(BlockCrashTest, WhoStartsProcessesIsKilledAnywhere) {
  const SharedBlock argument = SharedBlock::allocate(memory_, 100);
  EXPECT_GE(sweep([&] {
              const std::uint32_t index = reserve_context(*memory_, 3);
              ContextRecord& record = context_record(*memory_, index);
              record.request = store_payload(*memory_, {"request"}, {argument});
              RETINUE_CRASH_POINT();
              memory_->retain(record.request, kGuardianSlot);
              memory_->release(record.request);
              for (std::uint32_t rank = 0; rank < 3; ++rank) memory_->retain_holds_for(record.slots[rank]);
              RETINUE_CRASH_POINT();
              // The guardian starts them, and they end.
              for (std::uint32_t rank = 0; rank < 3; ++rank)
                process_slot(*memory_, record.slots[rank]).state.store(ProcessState::kDead);
              record.state.store(ContextRecord::kEnded);
              free_context(*memory_, index);
            }),
            50);
}

TEST_F(BlockCrashTest, WhoFindsNoRoomForProcessesIsKilledAnywhere) {
  const std::vector<std::uint32_t> others = reserve_process_slots(*memory_, kMaxProcesses - 2 - 4);
  const auto act = [this] { EXPECT_THROW(reserve_process_slots(*memory_, 5), SystemError); };
  const std::size_t reserved = reserved_slots(*memory_).size();
  for (long point = 1, has_ended = 0; has_ended == 0; ++point) {
    SCOPED_TRACE("point " + std::to_string(point));
    int status = 0;
    clear_up_after(run_victim(point, act, status));
    EXPECT_EQ(reserved_slots(*memory_).size(), reserved);
    has_ended = WIFEXITED(status) || HasFailure() ? 1 : 0;
    EXPECT_TRUE(has_ended == 0 || point >= 10) << point;
  }
  for (const std::uint32_t slot : others) free_process_slot(*memory_, slot);
}

/// Wherever the kill hits, which is between any two instructions.
TEST_F(BlockCrashTest, SurvivorsGoOnWhileOthersDie) {
  const SharedBlock ring = SharedBlock::allocate(memory_, 100);
  const Picture before = look_at_tables(*memory_);
  std::mt19937 random(1);
  const auto work = [&] {
    for (;;) {
      const SharedBlock own = SharedBlock::allocate(memory_, 9'000);
      const BlockHandle payload = store_payload(*memory_, {"message"}, {own});
      memory_->hand_over(payload, ring.handle());
      EXPECT_TRUE(memory_->take_from_holder(payload, ring.handle()));
    }
  };
  for (int round = 0; round < (test::is_sanitized() ? 10 : 40) && !HasFailure(); ++round) {
    const pid_t first = start(work);
    const pid_t second = start(work);
    for (unsigned left = random() % 50; left > 0; --left) use_blocks();
    kill(first, SIGKILL);
    kill(second, SIGKILL);
    end_of(first);
    end_of(second);
    // A payload may have died in the ring.
    Picture after = look_at_tables(*memory_);
    for (const auto& [index, block] : after.blocks) {
      if (block.holder == 0) continue;
      const BlockDescriptor& held = memory_->header().blocks.descriptors[index];
      memory_->take_from_holder(
          {held.generation, index,
           memory_->header().blocks.data_offset + held.first_page * memory_->header().blocks.page_bytes, held.bytes},
          ring.handle());
    }
    EXPECT_EQ(look_at_tables(*memory_), before);
  }
}

}  // namespace
}  // namespace retinue
