#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "launch/strangers.h"
#include "retinue/torch/process_group.h"
#include "support/hosts.h"

namespace retinue::test {

constexpr int kPort = 29517;  // The hosts' networks are their own: nobody else has it.

inline std::string backend_of(const ProcessGroup& group) {
  return group->getDefaultBackend()->getBackendName();
}

inline ProcessGroupOptions meeting(int rank, int size) {
  return {.init_method = fmt::format("tcp://{}:{}", TwoHosts::address(0), kPort),
          .timeout = std::chrono::seconds(60),
          .world_size = size,
          .rank = rank};
}

/// Tests whose ranks are on two hosts.
class SeveralHosts : public testing::Test {
 protected:
  void SetUp() override {
    setenv("RETINUE_TOKEN", "of the test", 1);
    if (!hosts_.missing().empty()) GTEST_SKIP() << hosts_.missing();
  }

  /// Runs `body` in ranks of which as many are on either host.
  void run_ranks(int size, const std::function<void(int rank)>& body, int killed = -1) {
    // Apart from the hosts' keepers, which are no processes that ranks left behind.
    const pid_t child = fork();
    if (child == 0) {
      run_strangers(
          size,
          [&](int rank) {
            hosts_.enter(rank * 2 / size);
            body(rank);
          },
          killed);
      std::fflush(stdout);
      _exit(HasFailure() ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "what went wrong is above";
  }

 private:
  TwoHosts hosts_;
};

}  // namespace retinue::test
