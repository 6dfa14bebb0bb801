// Messages of tensors that don't come.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>

#include "retinue/base/error.h"
#include "retinue/torch/messages.h"
#include "support/captured_stderr.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/wait_until.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;
using test::run_ranks;
using test::says;

TEST(LateMessages, ThatNeverComeAreADeadlockOfWhoWaitsForThem) {
  const test::CapturedStderr captured;
  run_ranks(3, [&](const JobGroup& members) {
    captured.begin();
    const ProcessGroup group = init_process_group(members, {.timeout = 60s, .late_after = 0ms});
    const int next = (members.rank + 1) % 3;
    at::Tensor tensor = torch::zeros({4});
    std::string text;
    try {
      if (members.rank == 0)
        irecv(tensor, group, next)->wait();
      else
        recv(tensor, group, next);
    } catch (const CollectiveMismatch& error) {
      text = error.what();
    }
    // Thrown where each process has one thread; else told, as another one may end it.
    EXPECT_TRUE(says(text + captured.text(), "deadlock, none of these waits can end: ")) << text << captured.text();
    EXPECT_TRUE(says(text, "waits to receive at most 16 bytes from rank 1 (tag 0) at ")) << text;
    EXPECT_TRUE(says(text, "late_messages_test.cpp")) << text;
  });
}

TEST(LateMessages, ReportWhoIsLate) {
  const test::CapturedStderr captured;
  run_ranks(2, [&](const JobGroup& members) {
    captured.begin();
    const ProcessGroup group = init_process_group(members, {.late_after = 1100ms});
    at::Tensor tensor = torch::full({4}, members.rank);
    if (members.rank == 1) {
      EXPECT_TRUE(test::wait_until([&] { return says(captured.text(), "rank 1 is late"); })) << captured.text();
      EXPECT_TRUE(says(captured.text(), "rank 0 waits to receive at most ")) << captured.text();
      send(tensor, group, 0);
    } else {
      recv(tensor, group, 1);
      EXPECT_TRUE(torch::equal(tensor, torch::full({4}, 1)));
    }
  });
}

}  // namespace
}  // namespace retinue
