#include "os/process/process_calls.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "os/process/process_stat.h"
#include "os/process/spare_descriptors.h"
#include "os/sync/life_lock.h"
#include "os/sync/robust_mutex.h"
#include "retinue/base/error.h"

namespace {

TEST(ForkUnnoticed, ChildIsInvisibleToWait) {
  const pid_t child = retinue::fork_unnoticed();
  if (child == 0) {
    for (;;) pause();
  }
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
  kill(child, SIGKILL);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, __WALL), child);
  EXPECT_TRUE(WIFSIGNALED(status));
}

/// What the guardian needs: a robust lock that a child of fork_unnoticed() holds at its death is handed on.
TEST(ForkUnnoticed, ChildHasWorkingRobustLocks) {
  struct Shared {
    retinue::RobustMutex mutex;
    retinue::LifeLock life;
  };
  auto* shared =
      static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(shared, MAP_FAILED);
  shared->mutex.init();
  shared->life.reset();
  const pid_t child = retinue::fork_unnoticed();
  if (child == 0) {
    shared->life.take();
    (void)shared->mutex.lock(std::chrono::minutes(1));
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, __WALL), child);
  EXPECT_TRUE(shared->life.owner_died());
  EXPECT_EQ(shared->mutex.lock(std::chrono::minutes(1)), retinue::RobustMutex::Result::kOwnerDied);
  shared->mutex.unlock();
  munmap(shared, sizeof(Shared));
}

TEST(WaitForExit, SeesTheEndAndTheTimeout) {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  const retinue::FileDescriptor pidfd = retinue::open_pidfd(child);
  EXPECT_FALSE(retinue::wait_for_exit(pidfd.get(), std::chrono::milliseconds(5)));
  kill(child, SIGKILL);
  EXPECT_TRUE(retinue::wait_for_exit(pidfd.get(), std::chrono::minutes(1)));
  waitpid(child, nullptr, 0);
}

TEST(ChildrenOfSelf, ListsChildren) {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  EXPECT_EQ(retinue::children_of_self(), std::vector<pid_t>{child});
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(retinue::children_of_self().empty());
}

int status_of(pid_t pid) {
  int status = -1;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

constexpr std::size_t kChildStack = std::size_t{256} << 10;

TEST(ForkToExecute, LeavesTheCallersEnvironment) {
  char** const before = environ;
  const pid_t pid = retinue::fork_to_execute(
      [] {
        char variable[] = "RETINUE_TEST_CODE=7";
        char* environment[] = {variable, nullptr};
        environ = environment;
        execl("/bin/sh", "sh", "-c", "exit $RETINUE_TEST_CODE", nullptr);
      },
      kChildStack);
  ASSERT_GT(pid, 0);
  EXPECT_EQ(environ, before);
  const int status = status_of(pid);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(ForkToExecute, EndsAChildThatCannotExecute) {
  const int status = status_of(retinue::fork_to_execute([] { execl("/no/such/program", "", nullptr); }, kChildStack));
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 127);
}

volatile std::sig_atomic_t handled = 0;

/// The child is in the caller's memory: nothing of the caller's may run there.
TEST(ForkToExecute, RunsNoHandlerOfTheCaller) {
  const auto before = std::signal(SIGUSR1, [](int) { handled = 1; });
  const pid_t pid = retinue::fork_to_execute(
      [] {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, nullptr);
        kill(getpid(), SIGUSR1);
      },
      kChildStack);
  const int status = status_of(pid);
  std::signal(SIGUSR1, before);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGUSR1);
  EXPECT_EQ(handled, 0);
}

/// As a program that fails before its guardian has come so far.
TEST(LifeLock, IsTakenAlsoWhereSomebodyWaitsForItsOwnersEndAlready) {
  static retinue::LifeLock life;  // In the thread's robust list to its end.
  life.reset();
  life.word().fetch_or(retinue::LifeLock::kWaiters);
  life.take();
  EXPECT_EQ(life.word().load() & ~retinue::LifeLock::kWaiters, static_cast<std::uint32_t>(gettid()));
  EXPECT_NE(life.word().load() & retinue::LifeLock::kWaiters, 0u) << "the kernel would wake nobody";
}

/// Not being able to look is no empty list.
TEST(ChildrenOfSelf, NeedsADescriptor) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UndefinedBehaviorSanitizer looks at objects through descriptors of its own";
#endif
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit none{0, limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  EXPECT_THROW(retinue::children_of_self(), retinue::SystemError);
  setrlimit(RLIMIT_NOFILE, &limit);
}

TEST(ProcessStat, KnowsAProcessUntilItIsGone) {
  EXPECT_EQ(retinue::process_stat(getpid())->parent, getppid());
  for (int round = 0; round < 300; ++round) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    std::thread reaper([child] { waitpid(child, nullptr, 0); });
    while (retinue::process_stat(child)) continue;  // It may go between the opening and the reading.
    reaper.join();
  }
}

TEST(ExitStatusOfEnding, IsOfProcessesThatRunNoMore) {
  EXPECT_EQ(retinue::exit_status_of_ending(getpid()), -1);
  const pid_t child = fork();
  if (child == 0) _exit(3);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_EQ(WEXITSTATUS(retinue::exit_status_of_ending(child)), 3);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(retinue::exit_status_of_ending(child), -1);
}

TEST(SpareDescriptors, AreThereWhenNoOthersAre) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit few{16, limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  {
    retinue::SpareDescriptors spare(2);
    std::vector<retinue::FileDescriptor> taken;
    while (taken.empty() || taken.back()) taken.emplace_back(open("/dev/null", O_RDONLY));
    const auto open_two = [] {
      const retinue::FileDescriptor first(open("/dev/null", O_RDONLY));
      const retinue::FileDescriptor second(open("/dev/null", O_RDONLY));
      EXPECT_TRUE(first && second);
    };
    spare.lend(open_two);
    spare.lend(open_two);  // They were taken back.
    EXPECT_LT(open("/dev/null", O_RDONLY), 0);
  }
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace
