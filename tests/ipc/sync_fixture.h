#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "ipc/memory/job_layout.h"
#include "support/job_test.h"
#include "support/ranks.h"
#include "support/wait_until.h"

namespace retinue::test {

/// A job of which this process is the program, and children that a test kills.
class SyncTest : public JobTest {
 protected:
  ~SyncTest() override {
    for (const Child& child : children_) {
      kill(child.pid, SIGKILL);
      EXPECT_EQ(waitpid(child.pid, nullptr, 0), child.pid);
      free_process_slot(*memory_, child.slot);
    }
  }

  /// Runs `body` in a process with a slot of its own, which ends with the test.
  pid_t start(const std::function<void()>& body, std::uint32_t slot = JobMemory::kNoSlot) {
    if (slot == JobMemory::kNoSlot) slot = reserve_process_slots(*memory_, 1).front();
    memory_->retain_holds_for(slot);
    const pid_t pid = fork();
    if (pid == 0) {
      enter_process_slot(*memory_, slot);
      try {
        body();
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
      _exit(HasFailure() ? 1 : 0);
    }
    children_.push_back({pid, slot});
    return pid;
  }
  /// Until it has ended; its wait() status.
  int end_of(pid_t pid) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    std::erase_if(children_, [&](const Child& child) {
      if (child.pid == pid) free_process_slot(*memory_, child.slot);
      return child.pid == pid;
    });
    return status;
  }
  /// Killed, but nobody in the job has noticed more than its life lock says.
  static void kill_now(pid_t pid) {
    kill(pid, SIGKILL);
    siginfo_t info;
    EXPECT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  }
  [[noreturn]] static void pause_for_ever() {
    for (;;) pause();
  }
  void kill_guardian() {
    const pid_t guardian = start([] {}, kGuardianSlot);
    siginfo_t info;
    EXPECT_EQ(waitid(P_PID, static_cast<id_t>(guardian), &info, WEXITED | WNOWAIT), 0);
  }

  using Body = std::function<void(int)>;
  static void in_threads(int count, const Body& body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
    for (std::thread& thread : threads) thread.join();
  }
  void in_processes(int count, const Body& body) {
    run_ranks_in(memory_, count, [&](const JobGroup& group) { body(group.rank); },
                 {.timeout = std::chrono::seconds(60)});
  }
  void in_both(int count, const Body& body) {
    in_threads(count, body);
    in_processes(count, body);
  }

 private:
  struct Child {
    pid_t pid;
    std::uint32_t slot;
  };
  std::vector<Child> children_;
};

}  // namespace retinue::test
