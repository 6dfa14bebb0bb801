#include "os/process/process_activity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <mutex>
#include <string>

#include "os/files/file_descriptor.h"
#include "os/files/kernel_files.h"
#include "os/process/process_calls.h"
#include "support/wait_until.h"

namespace retinue::test {
namespace {

/// What is said of a child that does `what`, when it has come to do it.
std::string activity_of(const std::function<void()>& what, const std::string& wanted) {
  const pid_t pid = fork();
  if (pid == 0) {
    what();
    _exit(0);
  }
  std::string text;
  EXPECT_TRUE(wait_until([&] {
    text = describe_activity(pid, std::nullopt, look_at_activity(pid));
    return text.find(wanted) != std::string::npos;
  })) << text;
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  return text;
}

TEST(ProcessActivity, NamesWhatAProcessReads) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const FileDescriptor read_end(ends[0]);
  const FileDescriptor write_end(ends[1]);
  char byte = 0;
  const std::string text = activity_of([&] { EXPECT_NE(read(read_end.get(), &byte, 1), 1); }, "is blocked reading");
  EXPECT_NE(text.find("read of descriptor " + std::to_string(read_end.get()) + ", pipe:["), std::string::npos) << text;
}

/// The kernel calls all of them restart_syscall then.
TEST(ProcessActivity, TellsWhatAProcessGoesOnWithThatWasInterrupted) {
  const auto interrupted = [](const std::function<void()>& wait, const std::string& wanted) {
    const pid_t pid = fork();
    if (pid == 0) {
      wait();
      _exit(0);
    }
    const auto says_so = [&] {
      return describe_activity(pid, std::nullopt, look_at_activity(pid)).find(wanted) != std::string::npos;
    };
    EXPECT_TRUE(wait_until(says_so)) << wanted;
    kill(pid, SIGSTOP);
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, WUNTRACED), pid);
    kill(pid, SIGCONT);
    EXPECT_TRUE(wait_until([&] {
      return read_kernel_file(fmt::format("/proc/{}/syscall", pid))
          .starts_with(std::to_string(SYS_restart_syscall) + " ");
    }));
    EXPECT_TRUE(wait_until(says_so)) << describe_activity(pid, std::nullopt, look_at_activity(pid));
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  };
  interrupted([] { poll(nullptr, 0, 3'600'000); }, "waits for descriptors (poll)");
  interrupted([] { sleep(3600); }, "sleeps (nanosleep)");
  interrupted(
      [] {
        std::mutex mutex;
        std::unique_lock lock(mutex);
        std::condition_variable().wait_for(lock, std::chrono::hours(1));
      },
      "waits for a lock, a thread or another rank (futex)");
}

TEST(ProcessActivity, TellsWhatAProcessWaitsFor) {
  activity_of([] { sleep(3600); }, "sleeps (nanosleep)");
  activity_of([] { raise(SIGSTOP); }, "is stopped (SIGSTOP or the like)");
  activity_of(
      [] {
        for (volatile bool loops = true; loops;) continue;
      },
      "runs");
  activity_of(
      [] {
        const pid_t own = getpid();
        if (fork() == 0) {
          die_with_parent(own);
          sleep(60);
          _exit(0);
        }
        wait(nullptr);
      },
      "waits for a child process (wait)");
}

TEST(ProcessActivity, IsNoneOfOneThatHasEnded) {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(describe_activity(pid, std::nullopt, look_at_activity(pid)), "has ended");
  waitpid(pid, nullptr, 0);
  EXPECT_FALSE(look_at_activity(pid));
  EXPECT_EQ(describe_activity(pid, std::nullopt, std::nullopt), "has ended");
}

TEST(ProcessActivity, TellsWhatHappenedBetweenTwoLooks) {
  ActivityLook before;
  before.time = std::chrono::steady_clock::now();
  before.state = 'R';
  ActivityLook now = before;
  now.time += std::chrono::seconds(2);
  const pid_t none = 0;
  EXPECT_EQ(describe_activity(none, before, now), "is ready to run, but got no CPU time in the last 2.0 s");
  before.state = 'S';
  EXPECT_EQ(describe_activity(none, before, now), "runs");  // It has just woken up.
  before.state = 'R';
  now.user_cpu = std::chrono::milliseconds(1900);
  EXPECT_EQ(describe_activity(none, before, now), "runs in its own code (95 % of a CPU in the last 2.0 s)");
  now.system_cpu = std::chrono::seconds(4);
  EXPECT_EQ(describe_activity(none, before, now), "runs in the kernel (295 % of a CPU in the last 2.0 s)");
  now.state = 'S';
  now.kernel_function = "do_poll";
  now.major_faults = 812;
  now.read_bytes = std::uint64_t{77} << 20;
  now.swapped_bytes = std::uint64_t{3} << 20;
  EXPECT_EQ(
      describe_activity(none, before, now),
      "waits in the kernel (do_poll); the process runs in the kernel (295 % of a CPU in the last 2.0 s); it waits "
      "for pages from disk: 812 major faults; it read 77 MiB in that time; 3 MiB of its memory are swapped out");
}

}  // namespace
}  // namespace retinue::test
