// Programs whose other habits must not disturb the job: threads that end, children of their own, waits for any child.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <thread>

#include "os/process/process_calls.h"
#include "retinue/base/error.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"
#include "support/paths.h"

namespace {

void meet(retinue::RankContext& context, std::uint64_t offset) {
  auto* leave = context.memory()->at<int>(offset);
  while (__atomic_load_n(leave, __ATOMIC_ACQUIRE) == 0) usleep(1000);
}

class OddParents : public testing::Test {
 protected:
  OddParents() : memory_(*retinue::Runtime::current().memory()), block_(memory_.allocate(sizeof(int))) {
    *memory_.at<int>(block_.offset) = 0;
  }
  ~OddParents() override { memory_.release(block_); }

  void let_leave() { __atomic_store_n(memory_.at<int>(block_.offset), 1, __ATOMIC_RELEASE); }

  retinue::JobMemory& memory_;
  retinue::BlockHandle block_;
};

/// The signal for a parent's death is sent at the death of the thread that forked.
TEST_F(OddParents, RanksOutliveTheThreadThatStartedThem) {
  std::optional<retinue::ProcessContext> ranks;
  std::thread([&] { ranks = retinue::spawn<meet>({.nprocs = 2, .join = false}, block_.offset); }).join();
  EXPECT_FALSE(ranks->join(std::chrono::milliseconds(50)));
  let_leave();
  EXPECT_NO_THROW(ranks->join());
}

TEST_F(OddParents, AWaitForAnyChildSeesTheProgramsOwnOnly) {
  retinue::ProcessContext ranks = retinue::spawn<meet>({.nprocs = 2, .join = false}, block_.offset);
  const pid_t own = fork();
  if (own == 0) _exit(7);
  int status = 0;
  EXPECT_EQ(waitpid(-1, &status, 0), own);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(waitpid(-1, &status, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
  let_leave();
  EXPECT_NO_THROW(ranks.join());
}

/// By kFork the ranks are the program's own children, and it may take their status away.
TEST_F(OddParents, AWaitForAnyChildMayTakeAForkedRanksStatus) {
  retinue::ProcessContext ranks =
      retinue::spawn<meet>({.nprocs = 2, .start_method = retinue::StartMethod::kFork, .join = false}, block_.offset);
  let_leave();
  for (int taken = 0; taken < 2;) taken += waitpid(-1, nullptr, 0) > 0 ? 1 : 0;
  EXPECT_NO_THROW(ranks.join());
}

/// Who drops a context lets its ranks go on, and need not know that they are children of its own.
TEST_F(OddParents, DroppedForkedRanksDoNotStayZombies) {
  int rank = 0;
  {
    const auto dropped =
        retinue::spawn<meet>({.nprocs = 1, .start_method = retinue::StartMethod::kFork, .join = false}, block_.offset);
    rank = dropped.pids()[0];
  }
  const retinue::FileDescriptor pidfd = retinue::open_pidfd(rank);
  let_leave();
  ASSERT_TRUE(retinue::wait_for_exit(pidfd.get(), std::chrono::minutes(1)));
  retinue::spawn<meet>({.nprocs = 1}, block_.offset);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

/// A program of its own, with its standard output in a pipe: this one's Runtime is not for its children.
class Victim {
 public:
  explicit Victim(const char* path, const char* fault = "", const char* argument = nullptr) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], 1);
      setenv("RETINUE_FAULT", fault, 1);
      execl(path, path, argument, nullptr);
      _exit(126);
    }
    close(ends[1]);
    output_ = ends[0];
  }
  ~Victim() {
    end();
    close(output_);
  }
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

  /// The next pid that it writes.
  pid_t read_pid() const {
    int pid = 0;
    EXPECT_EQ(read(output_, &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
    return pid;
  }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  int output_ = -1;
};

void expect_end_of(pid_t pid) {
  try {
    EXPECT_TRUE(retinue::wait_for_exit(retinue::open_pidfd(pid).get(), std::chrono::minutes(1)));
  } catch (const retinue::SystemError&) {
    // It is gone already.
  }
}

/// An unrelated child that inherited all descriptors must not hide the program's end: a program of its own is killed.
TEST_F(OddParents, ALeakedDescriptorHidesNoDeath) {
  Victim program(RETINUE_BIN_DIR "/leaky_program");
  const pid_t ranks[] = {program.read_pid(), program.read_pid()};
  const pid_t child = program.read_pid();
  program.end();
  for (const pid_t rank : ranks) expect_end_of(rank);
  EXPECT_EQ(kill(child, 0), 0) << "the program's own child is none of the job's";
  kill(child, SIGKILL);
}

/// Its two ranks have a parent that lives on, and one of them has not entered the job: the guardian ends them all the
/// same.
void expect_end_of_ranks(const Victim& program) {
  const pid_t ranks[] = {program.read_pid(), program.read_pid()};
  for (const pid_t rank : ranks) expect_end_of(rank);
}

TEST_F(OddParents, AProgramThatExecutesSomethingElseLeavesNoForkedRank) {
  expect_end_of_ranks(Victim(RETINUE_BIN_DIR "/replaced_program", "rank.forked:1=stop"));
}

TEST_F(OddParents, AProgramThatExecutesSomethingElseLeavesNoForkedRankOfWhichTheGuardianHasNotHeard) {
  expect_end_of_ranks(Victim(RETINUE_BIN_DIR "/replaced_program", "rank.forked:1=stop", "with-guardian-stopped"));
}

}  // namespace
