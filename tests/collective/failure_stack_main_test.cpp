// The stack in a report of what a call of Retinue's threw: the user's, and of Retinue the call alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "retinue/collective/communicator.h"
#include "retinue/collective/objects.h"
#include "retinue/launch/spawn.h"
#include "support/says.h"

using retinue::CollectiveCall;
using retinue::Communicator;

namespace {

/// Rank 0 fails, in a way that the name says, in this function; rank 1 is why.
[[gnu::noinline]] void train(Communicator& group, const std::string& how) {
  std::vector<float> data(11);
  if (how == "mismatch") group.all_reduce(std::span(data).first(group.rank() == 1 ? 11 : 10));
  if (how == "uneven") group.all_gather(data, std::span<float>(), std::vector<int>{1, 2});
  if (group.rank() == 1) return;
  if (how == "barrier") group.barrier();
  if (how == "message") group.recv(data, 1);
  if (how == "begun") group.start(CollectiveCall::barrier()).wait();
  if (how == "object") retinue::all_gather_object(group, how);
  if (how == "monitored") group.monitored_barrier({.timeout = std::chrono::milliseconds(10)});
}

void work(retinue::RankContext& context, const std::string& how) {
  Communicator group(context.world());
  train(group, how);
  if (how == "monitored") Communicator(context.world()).barrier();  // Rank 1 lives as long as rank 0 waits for it.
}

class FailureStack : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Of, FailureStack,
                         testing::Values("mismatch", "uneven", "barrier", "message", "begun", "object", "monitored"));

TEST_P(FailureStack, BeginsWithTheCallThatTheProgramMade) {
  const std::string how = GetParam();
  try {
    retinue::spawn<work>({.nprocs = 2}, how);
    FAIL() << "nothing failed";
  } catch (const retinue::ProcessRaisedException& error) {
    const std::string stack = error.outcome().stack;
    const std::size_t users = stack.find("(anonymous namespace)::train(");
    ASSERT_NE(users, std::string::npos) << error.what();
    EXPECT_TRUE(retinue::test::says(stack, "failure_stack_main_test.cpp:")) << stack;
    // At most one line, a call of Retinue's, stands before it.
    EXPECT_LE(std::count(stack.begin(), stack.begin() + static_cast<std::ptrdiff_t>(users), '\n'), 1) << stack;
    EXPECT_TRUE(retinue::test::says(error.what(), "train(")) << error.what();
  }
}

}  // namespace
