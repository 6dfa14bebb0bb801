#include "collective/diagnosis/process_end.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "ipc/memory/process_table.h"
#include "retinue/ipc/job_memory.h"
#include "support/wait_until.h"

namespace retinue::test {
namespace {

/// A process in a slot of a job, whose end is asked for before and after somebody has waited for it.
class ProcessEnd : public testing::Test {
 protected:
  ProcessEnd() : memory_(JobMemory::create(std::size_t{1} << 30)), index_(reserve_process_slots(*memory_, 1).front()) {}
  ~ProcessEnd() override { free_process_slot(*memory_, index_); }

  ProcessSlot& slot() { return process_slot(*memory_, index_); }

  template <typename End>
  void run(End end) {
    const pid_t pid = fork();
    if (pid == 0) {
      enter_process_slot(*memory_, index_);
      end();
      _exit(0);
    }
    ASSERT_TRUE(wait_until([&] { return !slot().is_alive(); }));
    siginfo_t info{};
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
    fresh_ = end_of_process(slot());
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    slot().exit_status.store(status);
    if (slot().state.load() != ProcessState::kFinished) slot().state.store(ProcessState::kDead);
    reaped_ = end_of_process(slot());
    slot().state.store(ProcessState::kDead);
  }

  std::shared_ptr<JobMemory> memory_;
  std::uint32_t index_;
  std::string fresh_;
  std::string reaped_;
};

TEST_F(ProcessEnd, IsNormalWithExitCodeZero) {
  run([] {});
  EXPECT_EQ(fresh_, "finished normally");
  EXPECT_EQ(reaped_, "finished normally");
}

TEST_F(ProcessEnd, HasItsExitCode) {
  run([] { _exit(3); });
  EXPECT_EQ(fresh_, "exited with code 3");
  EXPECT_EQ(reaped_, "exited with code 3");
}

TEST_F(ProcessEnd, HasItsSignalWithItsName) {
  run([] { raise(SIGKILL); });
  EXPECT_EQ(fresh_, "died (signal 9, SIGKILL)");
  EXPECT_EQ(reaped_, "died (signal 9, SIGKILL)");
}

TEST_F(ProcessEnd, HasTheTypeOfWhatItThrew) {
  run([this] {
    std::strcpy(slot().crash.type, "std::runtime_error");
    slot().crash.kind = CrashKind::kException;
    slot().crash.phase.store(2);
    slot().exit_status.store(1 << 8);
    slot().state.store(ProcessState::kFinished);
  });
  EXPECT_EQ(fresh_, "threw std::runtime_error");
}

/// On a busy machine the process that left its group gets to say that it has finished some time later.
TEST_F(ProcessEnd, IsWaitedForWhileTheProcessDoesNotRun) {
  const pid_t pid = fork();
  if (pid == 0) {
    enter_process_slot(*memory_, index_);
    raise(SIGSTOP);
    slot().exit_status.store(0);
    slot().state.store(ProcessState::kFinished);
    for (;;) pause();
  }
  ASSERT_EQ(waitpid(pid, nullptr, WUNTRACED), pid);
  std::thread later([pid] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    kill(pid, SIGCONT);
  });
  EXPECT_EQ(end_of_process(slot()), "finished normally");
  later.join();
  kill(pid, SIGKILL);
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  slot().state.store(ProcessState::kDead);
}

TEST_F(ProcessEnd, IsNoneOfAProcessThatOnlyLeftTheGroup) {
  enter_process_slot(*memory_, index_);
  EXPECT_EQ(end_of_process(slot()), "left the group");
  slot().state.store(ProcessState::kDead);
  // The kernel's list of this thread's robust locks leads into the memory to the thread's end.
  static std::vector<std::shared_ptr<JobMemory>> kept;
  kept.push_back(memory_);
}

}  // namespace
}  // namespace retinue::test
