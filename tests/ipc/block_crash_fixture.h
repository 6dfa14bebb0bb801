#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bitset>
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "ipc/crash_victim.h"
#include "ipc/memory/context_table.h"
#include "ipc/memory/job_layout.h"
#include "ipc/memory/payload.h"
#include "ipc/memory/process_table.h"
#include "ipc/sync_fixture.h"
#include "ipc/table_picture.h"

/// For tests of the tables of blocks, processes and contexts, compiled with RETINUE_CRASH_POINTS.
namespace retinue {

namespace test {

class BlockCrashTest : public test::SyncTest {
 protected:
  /// Runs `body` in a process with a slot of its own, which dies at its `point`-th point; 0: nowhere. Returns the slot,
  /// marked as the guardian marks the dead.
  std::uint32_t run_victim(long point, const std::function<void()>& body, int& status) {
    const auto [slot, pid] = start_victim(*memory_, point, body);
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    process_slot(*memory_, slot).state.store(ProcessState::kDead);
    return slot;
  }

  /// As the guardian at the end of a context.
  void clear_up_after(std::uint32_t slot) {
    std::bitset<kMaxProcesses> dead;
    dead.set(slot);
    free_starts_of(*memory_, dead);
    free_process_slot(*memory_, slot);
  }

  /// Survivors take some blocks and give them back; nothing of what was there is theirs.
  void use_blocks() {
    std::vector<SharedBlock> taken;
    for (const std::size_t bytes : {1u, 5'000u, 100u, 40'000u}) {
      taken.push_back(SharedBlock::allocate(memory_, bytes));
      std::fill_n(taken.back().data(), bytes, std::byte{0xee});
    }
    const BlockHandle payload = store_payload(*memory_, {"a payload"}, taken);
    taken.clear();
    EXPECT_EQ(payload_bytes(*memory_, payload), "a payload");
    memory_->release(payload);
  }

  /// Kills the victim at its first point, its second, and so on, until it comes through. `act` may change nothing but
  /// its own holds, or what `undo` takes back, whether it was done, half done or not done. Returns how many points.
  long sweep(
      const std::function<void()>& act, const std::function<void()>& undo = [] {}) {
    const Picture before = look_at_tables(*memory_);
    for (long point = 1;; ++point) {
      SCOPED_TRACE("point " + std::to_string(point));
      int status = 0;
      const std::uint32_t slot = run_victim(point, act, status);
      use_blocks();  // While what the dead held is still its own.
      clear_up_after(slot);
      undo();
      use_blocks();
      EXPECT_EQ(look_at_tables(*memory_), before);
      EXPECT_TRUE(reserved_slots(*memory_).empty());
      EXPECT_TRUE(reserved_contexts(*memory_).empty());
      if (WIFEXITED(status) || HasFailure()) {
        EXPECT_EQ(status, 0);
        return point - 1;
      }
      EXPECT_EQ(WTERMSIG(status), SIGKILL);
    }
  }
};

}  // namespace test
}  // namespace retinue
