#pragma once

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <vector>

#include "ipc/crash_victim.h"
#include "ipc/memory/job_layout.h"
#include "retinue/ipc/job_memory.h"
#include "support/fork_shared.h"
#include "support/job_test.h"

/// For tests that kill a process at each point of sources that they compile once more with RETINUE_CRASH_POINTS.
namespace retinue {

/// What the victims had done when they died, in shared memory.
struct Progress {
  std::atomic<int> put;
  std::atomic<int> got;
};

class CrashTest : public test::JobTest {
 protected:
  /// `body` in a process with a slot of its own, which is killed at its point; 0: never.
  Victim start_victim(long point, const std::function<void()>& body) {
    return retinue::start_victim(*memory_, point, body);
  }
  /// Waits for its end, and does what the guardian would. True: it exited by itself.
  bool bury(const Victim& victim) {
    int status = 0;
    EXPECT_EQ(waitpid(victim.pid, &status, 0), victim.pid);
    process_slot(*memory_, victim.slot).state.store(ProcessState::kDead);
    free_process_slot(*memory_, victim.slot);
    return WIFEXITED(status);
  }
  bool run_victim(long point, const std::function<void()>& body) { return bury(start_victim(point, body)); }

  test::ForkShared<Progress> progress_;
};

}  // namespace retinue
