#include "retinue/ipc/job_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/char_field.h"
#include "ipc/memory/context_table.h"
#include "ipc/memory/job_layout.h"
#include "os/files/file_descriptor.h"
#include "os/machine/memory.h"
#include "retinue/base/error.h"
#include "support/fork_shared.h"
#include "support/job_test.h"
#include "support/memory_map.h"

using retinue::BlockHandle;
using retinue::JobMemory;

namespace {

constexpr std::size_t kCapacity = std::size_t{256} << 20;

class JobMemoryTest : public retinue::test::JobTest {
 protected:
  JobMemoryTest() : JobTest(kCapacity) {}

  /// Runs `body` in a child that has slot `slot` of the job; returns its wait() status.
  template <class Body>
  int in_child(std::uint32_t slot, Body body) {
    const pid_t pid = fork();
    if (pid == 0) {
      enter_process_slot(*memory_, slot);
      body();
      _exit(0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return status;
  }
};

TEST_F(JobMemoryTest, GivesPagesBackAndUsesThemAgain) {
  const BlockHandle first = memory_->allocate(10'000);
  EXPECT_EQ(first.offset % 4096, 0u);
  EXPECT_EQ(first.bytes, 10'000u);
  std::memset(memory_->at(first.offset), 0x5a, first.bytes);
  memory_->release(first);
  EXPECT_EQ(memory_->allocated_bytes(), 0u);
  const BlockHandle second = memory_->allocate(8'000);
  EXPECT_EQ(second.offset, first.offset);
  memory_->release(second);
}

TEST_F(JobMemoryTest, RandomBlocksNeverOverlap) {
  std::mt19937 random(1);
  std::vector<BlockHandle> blocks;
  for (int step = 0; step < 4000; ++step) {
    if (blocks.size() > 40 || (!blocks.empty() && random() % 2 == 0)) {
      const std::size_t which = random() % blocks.size();
      const auto* words = memory_->at<std::uint32_t>(blocks[which].offset);
      for (std::size_t i = 0; i < blocks[which].bytes / 4; ++i) ASSERT_EQ(words[i], blocks[which].index);
      memory_->release(blocks[which]);
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(which));
    } else {
      blocks.push_back(memory_->allocate(4 + random() % 60'000));
      std::fill_n(memory_->at<std::uint32_t>(blocks.back().offset), blocks.back().bytes / 4, blocks.back().index);
    }
  }
  for (const BlockHandle& block : blocks) memory_->release(block);
  EXPECT_EQ(memory_->allocated_bytes(), 0u);
}

TEST_F(JobMemoryTest, FindsTheBlockOfAPointer) {
  const BlockHandle block = memory_->allocate(20'000);
  EXPECT_EQ(memory_->find(memory_->at(block.offset) + 19'999), block);
  EXPECT_FALSE(memory_->find(&block).has_value());
  memory_->release(block);
  EXPECT_FALSE(memory_->find(memory_->at(block.offset)).has_value());
}

TEST_F(JobMemoryTest, ExhaustionNamesTheHolders) {
  const BlockHandle block = memory_->allocate(std::size_t{100} << 20);
  const BlockHandle message = memory_->allocate(std::size_t{20} << 20);
  memory_->hand_over(message, block);
  try {
    memory_->allocate(std::size_t{200} << 20);
    ADD_FAILURE() << "more than the capacity was given";
  } catch (const retinue::SharedMemoryExhausted& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("the program (pid " + std::to_string(getpid()) + ") 100 MiB, messages in flight 20 MiB"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("RETINUE_JOB_MEMORY"), std::string::npos) << text;
  }
  memory_->release(block);
}

TEST_F(JobMemoryTest, AHugeSizeIsExhaustionAndNothingElse) {
  EXPECT_THROW(memory_->allocate(~std::size_t{0}), retinue::SharedMemoryExhausted);
  EXPECT_THROW(memory_->allocate(~std::size_t{0} / 2), retinue::SharedMemoryExhausted);
}

TEST_F(JobMemoryTest, ReleasingTwiceIsAnError) {
  const BlockHandle block = memory_->allocate(1);
  memory_->release(block);
  EXPECT_THROW(memory_->release(block), retinue::UsageError);
}

TEST_F(JobMemoryTest, LastOwnerFrees) {
  const BlockHandle block = memory_->allocate(1);
  memory_->retain(block, 70);
  memory_->release(block);
  EXPECT_GT(memory_->allocated_bytes(), 0u);
  memory_->release(block, 70);
  EXPECT_EQ(memory_->allocated_bytes(), 0u);
}

TEST_F(JobMemoryTest, WhatADeadProcessHeldComesBack) {
  const std::uint32_t slot = retinue::reserve_process_slots(*memory_, 1)[0];
  const int status = in_child(slot, [&] {
    for (int i = 0; i < 10; ++i) memory_->allocate(100'000);
    raise(SIGKILL);
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_GT(memory_->allocated_bytes(), 0u);
  EXPECT_FALSE(retinue::process_slot(*memory_, slot).is_alive());
  retinue::free_process_slot(*memory_, slot);
  EXPECT_EQ(memory_->allocated_bytes(), 0u);
}

TEST_F(JobMemoryTest, WhatAnAbandonedProcessHeldStaysUntilItHasEnded) {
  const std::uint32_t context = retinue::reserve_context(*memory_, 1);
  const std::uint32_t slot = retinue::context_record(*memory_, context).slots[0];
  const retinue::test::ForkShared<BlockHandle> held;
  in_child(slot, [&] { *held = memory_->allocate(100'000); });
  retinue::process_slot(*memory_, slot).state.store(retinue::ProcessState::kDead);
  EXPECT_FALSE(memory_->is_held(*held));
  EXPECT_FALSE(memory_->may_be_used(*held));
  retinue::process_slot(*memory_, slot).abandoned_in = 'D';
  EXPECT_FALSE(memory_->is_held(*held));
  EXPECT_TRUE(memory_->may_be_used(*held));
  EXPECT_FALSE(retinue::free_abandoned_slot(*memory_, slot)) << "its report may still be read";
  retinue::free_context(*memory_, context);
  EXPECT_GT(memory_->allocated_bytes(), 0u);
  const std::uint32_t other = retinue::reserve_process_slots(*memory_, 1)[0];
  EXPECT_NE(other, slot);
  retinue::free_process_slot(*memory_, other);
  EXPECT_TRUE(memory_->may_be_used(*held));
  EXPECT_TRUE(retinue::free_abandoned_slot(*memory_, slot));
  EXPECT_FALSE(memory_->may_be_used(*held));
  EXPECT_EQ(memory_->allocated_bytes(), 0u);
  EXPECT_EQ(retinue::reserve_process_slots(*memory_, 1)[0], slot);
  retinue::free_process_slot(*memory_, slot);
}

TEST_F(JobMemoryTest, AProcessKilledInsideTheTableIsRepaired) {
  const BlockHandle kept = memory_->allocate(50'000);
  const std::uint32_t slot = retinue::reserve_process_slots(*memory_, 1)[0];
  const int status = in_child(slot, [&] {
    const BlockHandle half = memory_->allocate(30'000);
    const retinue::RobustLock lock(memory_->header().blocks.mutex, std::chrono::minutes(1));
    // As if killed in the middle of freeing: the descriptor is free, the pages are still marked.
    memory_->header().blocks.descriptors[half.index].used.store(0);
    raise(SIGKILL);
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  const BlockHandle next = memory_->allocate(30'000);
  EXPECT_GE(next.offset, kept.offset + kept.bytes);
  EXPECT_EQ(memory_->allocated_bytes(), (50'000u + 4095) / 4096 * 4096 + (30'000u + 4095) / 4096 * 4096);
  memory_->release(next);
  memory_->release(kept);
}

TEST_F(JobMemoryTest, ManyProcessesAllocateAtOnce) {
  const std::vector<std::uint32_t> slots = retinue::reserve_process_slots(*memory_, 4);
  std::vector<pid_t> children;
  for (const std::uint32_t slot : slots) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    enter_process_slot(*memory_, slot);
    for (int i = 0; i < 2000; ++i) {
      const BlockHandle block = memory_->allocate(5000);
      auto* words = memory_->at<volatile std::uint32_t>(block.offset);
      for (int k = 0; k < 1250; ++k) words[k] = slot;
      for (int k = 0; k < 1250; ++k)
        if (words[k] != slot) _exit(1);
      memory_->release(block);
    }
    _exit(0);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(memory_->allocated_bytes(), 0u);
}

TEST_F(JobMemoryTest, IsSealed) {
  const int seals = fcntl(memory_->memfd(), F_GET_SEALS);
  EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_NE(ftruncate(memory_->memfd(), 0), 0);
}

TEST_F(JobMemoryTest, AttachSeesTheSameMemory) {
  const BlockHandle block = memory_->allocate(4096);
  const std::shared_ptr<JobMemory> other = JobMemory::attach(memory_->memfd());
  *memory_->at<int>(block.offset) = 17;
  EXPECT_EQ(*other->at<int>(block.offset), 17);
  memory_->release(block);
}

TEST_F(JobMemoryTest, AttachRefusesAnotherMinorVersion) {
  auto& made_by = memory_->header().version;
  const std::string own = made_by;
  const std::string minor = own.substr(0, own.rfind('.') + 1);
  retinue::fill(made_by, minor + "99");
  EXPECT_NO_THROW(JobMemory::attach(memory_->memfd()));
  std::strcpy(made_by, "0.0.1");
  try {
    JobMemory::attach(memory_->memfd());
    FAIL() << "another version's memory was attached";
  } catch (const retinue::UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("(0.0.1, and this is " + own), std::string::npos) << error.what();
  }
}

TEST(JobMemoryAttach, RefusesOtherFiles) {
  const retinue::FileDescriptor file(memfd_create("other", 0));
  EXPECT_THROW(JobMemory::attach(file.get()), retinue::UsageError);
  ASSERT_EQ(ftruncate(file.get(), sizeof(retinue::JobHeader) + 4096), 0);
  EXPECT_THROW(JobMemory::attach(file.get()), retinue::UsageError);
  EXPECT_THROW(JobMemory::attach(-1), retinue::SystemError);
}

TEST(JobMemoryCreate, RefusesACapacityTooSmallForItsTables) {
  EXPECT_THROW(JobMemory::create(1 << 20), retinue::UsageError);
}

TEST(JobMemoryCreate, AProcessWithoutSlotCannotAllocate) {
  const auto memory = JobMemory::create(kCapacity);
  EXPECT_THROW(memory->allocate(1), retinue::UsageError);
}

/// A first touch of small pages takes thirteen times as long, and each process that touches them pays again.
TEST_F(JobMemoryTest, NewMemoryIsHugePages) {
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory_->base()) % retinue::kHugePageBytes, 0u);
  EXPECT_EQ(memory_->header().blocks.data_offset % retinue::kHugePageBytes, 0u);
  constexpr std::size_t kBytes = std::size_t{16} << 20;
  const BlockHandle block = memory_->allocate(kBytes);
  std::memset(memory_->at(block.offset), 1, kBytes);
  const std::size_t huge = retinue::test::smaps_bytes("ShmemPmdMapped");
  memory_->release(block);
  if (huge == 0) GTEST_SKIP() << "this kernel makes no huge pages of shared memory on request";
  EXPECT_GE(huge, kBytes);
}

}  // namespace
