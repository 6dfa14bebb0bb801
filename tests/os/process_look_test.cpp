#include "os/process/process_look.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>

#include "os/process/process_activity.h"
#include "support/wait_until.h"

namespace retinue::test {
namespace {

TEST(ProcessIdentity, TellsAProcessThatHasEnded) {
  const pid_t pid = fork();
  if (pid == 0) {
    pause();
    _exit(0);
  }
  const std::string identity = identity_of_process(pid);
  EXPECT_TRUE(identity.starts_with(std::to_string(pid) + "-")) << identity;
  EXPECT_FALSE(has_process_ended(identity));
  EXPECT_TRUE(has_process_ended(std::to_string(pid) + "-1")) << "another one had this pid";
  kill(pid, SIGKILL);
  EXPECT_TRUE(wait_until([&] { return has_process_ended(identity); })) << "nobody has waited for it";
  waitpid(pid, nullptr, 0);
  EXPECT_TRUE(has_process_ended(identity));
  EXPECT_EQ(identity_of_process(pid), "");
}

TEST(ProcessIdentity, AProcessGoesOnWithoutItsMainThread) {
  const pid_t pid = fork();
  if (pid == 0) {
    std::thread([] { pause(); }).detach();
    syscall(SYS_exit, 0);  // pthread_exit() would unwind into the test.
  }
  const std::string identity = identity_of_process(pid);
  const auto activity = [&] { return describe_activity(pid, std::nullopt, look_at_activity(pid)); };
  EXPECT_TRUE(wait_until([&] { return activity() == "goes on in other threads: its main thread has ended"; }))
      << activity();
  EXPECT_FALSE(has_process_ended(identity));
  EXPECT_EQ(identity_of_process(pid), identity);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  EXPECT_TRUE(has_process_ended(identity));
}

TEST(ProcessIdentity, TakesNoneForEndedThatItCannotLookAt) {
  const std::string identity = identity_of_process(getpid());
  const pid_t pid = fork();
  if (pid == 0) {
    const rlimit none{.rlim_cur = 0, .rlim_max = 0};
    setrlimit(RLIMIT_NOFILE, &none);
    _exit(identity_of_process(getppid()).empty() && !has_process_ended(identity) && !has_process_ended("") ? 0 : 1);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace retinue::test
