// Waits that a signal's handler ends, as Python's does. In place of a handler an atomic says so.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "retinue/os/detail/interrupt.h"
#include "support/fork_shared.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/wait_until.h"

namespace retinue::test {
namespace {

using namespace std::chrono_literals;

std::atomic<bool> is_interrupted_now{false};

/// Rank 0 is interrupted while it is in `wait`. Rank 1 then makes a call in vain.
void expect_interrupted(const std::function<void(Communicator&)>& wait, const std::string& words) {
  const ForkShared<std::atomic<bool>> is_over;
  run_ranks(2, [&](const JobGroup& members) {
    Communicator group(members, {.timeout = 60s});
    group.barrier();
    if (group.rank() == 0) {
      detail::interrupt_check = [] { return is_interrupted_now.load(); };
      is_interrupted_now = true;
    } else {
      EXPECT_TRUE(wait_until([&] { return is_over->load(); }));
    }
    try {
      group.rank() == 0 ? wait(group) : group.barrier();
      ADD_FAILURE() << "rank 0 was interrupted";
    } catch (const PeerLost& error) {
      EXPECT_TRUE(says(error.what(), "rank 0 " + words)) << error.what();
      EXPECT_TRUE(says(error.what(), "and was interrupted there by a signal")) << error.what();
      EXPECT_EQ(error.ranks(), std::vector<int>{0});
    }
    *is_over = true;
  });
}

TEST(Interrupt, EndsACollective) {
  expect_interrupted([](Communicator& group) { group.barrier(); }, "waits in its 2nd call, barrier");
}

TEST(Interrupt, EndsAWaitForAllLines) {
  expect_interrupted(
      [](Communicator& group) {
        std::vector<float> data(100'000, 1.0f);
        group.all_reduce(std::span(data));
      },
      "waits in its 2nd call, all_reduce(fp32, 100000, sum)");
}

TEST(Interrupt, EndsTheWaitForABegunCollective) {
  expect_interrupted([](Communicator& group) { group.start(CollectiveCall::barrier()).wait(); },
                     "waits in its 2nd call, barrier");
}

TEST(Interrupt, EndsAWaitForAMessage) {
  expect_interrupted(
      [](Communicator& group) {
        int value = 0;
        group.recv(std::span(&value, 1), 1);
      },
      "waits to receive");
}

/// And one that has been asked lets the wait go on.
TEST(Interrupt, IsNoneWhereNoHandlerThrew) {
  const ForkShared<std::atomic<int>> times;
  run_ranks(2, [&](const JobGroup& members) {
    static std::atomic<int>* asked = nullptr;
    asked = &*times;
    Communicator group(members, {.timeout = 60s});
    if (group.rank() == 0) {
      detail::interrupt_check = [] {
        ++*asked;
        return false;
      };
    } else {
      EXPECT_TRUE(wait_until([&] { return times->load() > 2; }));
    }
    int value = 1;
    group.all_reduce(std::span(&value, 1));
    EXPECT_EQ(value, 2);
  });
}

}  // namespace
}  // namespace retinue::test
