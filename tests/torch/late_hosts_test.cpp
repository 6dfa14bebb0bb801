// Late ranks of groups of several hosts.
#include <torch/torch.h>

#include <string>

#include "retinue/base/error.h"
#include "retinue/torch/groups.h"
#include "support/captured_stderr.h"
#include "support/says.h"
#include "support/wait_until.h"
#include "torch/several_hosts.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;
using test::meeting;
using test::says;
using test::SeveralHosts;
using test::wait_until;

// Of three ranks the last one is on a host of its own.
TEST_F(SeveralHosts, SayWhoOfThemIsLate) {
  const test::CapturedStderr captured;
  run_ranks(3, [&](int rank) {
    captured.begin();
    ProcessGroupOptions options = meeting(rank, 3);
    options.late_after = 1500ms;
    const ProcessGroup world = init_process_group(options);
    for (const int late : {1, 2}) {
      barrier(world);
      const std::string head = "retinue: group \"world\": rank " + std::to_string(late) + " is late\n";
      if (rank == late) {
        EXPECT_TRUE(wait_until([&] { return says(captured.text(), head); })) << captured.text();
      }
      at::Tensor sum = torch::ones({5});
      all_reduce(sum, world);
    }
    barrier(world);
    const std::string text = captured.text();
    EXPECT_TRUE(says(text, "waits in its 2nd call, all_reduce(fp32, 5, sum) at ")) << text;
    EXPECT_TRUE(says(text, ") is missing, seen after 1 call, the last barrier at ")) << text;
    EXPECT_TRUE(says(text, ") is missing, seen after 3 calls, the last barrier at ")) << text;
    EXPECT_TRUE(says(text, "late_hosts_test.cpp:")) << text;
  });
}

TEST_F(SeveralHosts, SayAtTheTimeoutWhoIsMissing) {
  run_ranks(3, [&](int rank) {
    const ProcessGroup control = init_process_group(meeting(rank, 3));
    const ProcessGroup world = new_group({0, 1, 2}, control);
    barrier(world);
    if (rank == 0) world->setTimeout(700ms);
    if (rank != 1) {
      std::string text;
      try {
        barrier(world);
        ADD_FAILURE() << "all came";
      } catch (const TimeoutError& error) {
        text = error.what();
      }
      EXPECT_TRUE(says(text, "rank 0 waits in its 2nd call, barrier at ")) << text;
      EXPECT_TRUE(says(text, "rank 1 (pid ")) << text;
      EXPECT_TRUE(says(text, ", seen after 1 call, the last barrier at ")) << text;
      EXPECT_TRUE(says(text, ", which ")) << text;
    }
    barrier(control);
  });
}

}  // namespace
}  // namespace retinue
