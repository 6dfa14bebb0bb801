// Forked ranks of a program with other code that waits for any child: it takes their exit statuses.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <stdexcept>
#include <string>

#include "os/process/process_calls.h"
#include "retinue/launch/spawn.h"

using retinue::ProcessExitedException;
using retinue::RankContext;
using retinue::RankEnd;

namespace {

void take_all_children(int) {
  const int error = errno;
  while (waitpid(-1, nullptr, WNOHANG) > 0) continue;
  errno = error;
}

/// Whether this kernel tells how a process ended that was waited for already: Linux 6.15 and later.
bool kernel_tells() {
  sigset_t child_events;
  sigset_t before;
  sigemptyset(&child_events);
  sigaddset(&child_events, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child_events, &before);
  const pid_t child = fork();
  if (child == 0) _exit(9);
  const retinue::FileDescriptor pidfd = retinue::open_pidfd(child);
  waitpid(child, nullptr, 0);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  const int status = retinue::exit_status_of_reaped(pidfd.get());
  EXPECT_TRUE(status == -1 || (WIFEXITED(status) && WEXITSTATUS(status) == 9)) << status;
  return status != -1;
}

ProcessExitedException failure_of(const std::string& how) {
  try {
    retinue::spawn({.nprocs = 2}, [&](RankContext& context) {
      signal(SIGCHLD, SIG_DFL);
      if (context.rank() != 1) pause();
      if (how == "exits") _exit(3);
      raise(SIGUSR1);
    });
  } catch (const ProcessExitedException& error) {
    return error;
  }
  throw std::logic_error("spawn returned although a rank failed");
}

class ReapedRanks : public testing::Test {
 protected:
  ReapedRanks() { signal(SIGCHLD, take_all_children); }
  ~ReapedRanks() override { signal(SIGCHLD, SIG_DFL); }
};

TEST_F(ReapedRanks, AreReportedAsTheyEndedOrAsUnknown) {
  const bool tells = kernel_tells();
  for (int round = 0; round < 20; ++round) {
    const ProcessExitedException exited = failure_of("exits");
    EXPECT_EQ(exited.rank(), 1);
    EXPECT_EQ(exited.outcome().end, RankEnd::kExited) << exited.what();
    if (tells) {
      EXPECT_EQ(exited.exit_code(), 3) << exited.what();
    }
    EXPECT_TRUE(exited.outcome().exit_code == 3 ||
                exited.outcome().message.starts_with("its exit code or signal is not known"))
        << exited.what();
    const ProcessExitedException killed = failure_of("is killed");
    if (tells) {
      EXPECT_EQ(killed.signal(), SIGUSR1) << killed.what();
    }
    EXPECT_EQ(std::string(killed.what()).find("SIGKILL:"), std::string::npos) << killed.what();
    EXPECT_EQ(std::string(killed.what()).find("memory ran out"), std::string::npos) << killed.what();
  }
}

}  // namespace
