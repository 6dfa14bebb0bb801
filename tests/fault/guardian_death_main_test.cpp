#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>

#include "ipc/memory/job_layout.h"
#include "os/process/process_calls.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"

namespace {

void wait_for_the_end(retinue::RankContext&) {
  for (;;) pause();
}

TEST(GuardianDeath, EndsItsRanksAndIsReported) {
  retinue::ProcessContext ranks = retinue::spawn<wait_for_the_end>({.nprocs = 2, .join = false});
  EXPECT_FALSE(ranks.join(std::chrono::milliseconds(100)));
  std::vector<retinue::FileDescriptor> pidfds;
  for (const int pid : ranks.pids()) pidfds.push_back(retinue::open_pidfd(pid));
  const auto& guardian = retinue::process_slot(*retinue::Runtime::current().memory(), retinue::kGuardianSlot);
  kill(guardian.pid.load(), SIGKILL);
  try {
    ranks.join();
    ADD_FAILURE() << "join returned although the guardian was killed";
  } catch (const retinue::SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("guardian"), std::string::npos) << error.what();
  }
  for (const retinue::FileDescriptor& pidfd : pidfds)
    EXPECT_TRUE(retinue::wait_for_exit(pidfd.get(), std::chrono::minutes(1)));
  EXPECT_THROW(retinue::spawn<wait_for_the_end>({.nprocs = 1}), retinue::Error);
}

}  // namespace
