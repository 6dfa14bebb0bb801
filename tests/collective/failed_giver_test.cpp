// A member fails in a collective whose data the others read where they are: they get an error, or the data as they
// were.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "os/sync/cpu_relax.h"
#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "retinue/ipc/job_memory.h"
#include "support/fork_shared.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

using namespace std::chrono_literals;

/// Some 200 us for each round, so that the others are anywhere.
void pause(int round) {
  for (int i = 0; i < round * 8000; ++i) cpu_relax();
}

/// Seen by all ranks.
class FailedGiver : public testing::Test {
 protected:
  void await_change() const {
    while (!*changed_) std::this_thread::yield();
  }

  ForkShared<std::atomic<bool>> changed_;
};

std::span<float> job_buffer(const JobGroup& group, std::size_t count, float value) {
  auto* data = group.memory->at<float>(group.memory->allocate(count * sizeof(float)).offset);
  std::fill_n(data, count, value);
  return {data, count};
}

constexpr std::size_t kCount = 100'000;

TEST_F(FailedGiver, ThatDroppedItsCallIsNotReadAfterwards) {
  Bytes whole;
  const auto make_calls = [&whole](std::span<float> data) {
    whole = {reinterpret_cast<std::byte*>(data.data()), kCount * sizeof(float)};
    return std::vector<CollectiveCall>{
        CollectiveCall::broadcast(data.data(), kCount * sizeof(float), 0),
        CollectiveCall::all_reduce(data.data(), kCount, Dtype::kFloat32, ReduceOp::kSum),
        CollectiveCall::all_reduce_coalesced(std::span(&whole, 1), Dtype::kFloat32, ReduceOp::kSum),
        CollectiveCall::all_reduce(data.data(), kCount, reduce_function<std::plus<float>{}, float>()),
        CollectiveCall::all_gather(data.data(), data.data() + kCount, kCount * sizeof(float)),
        CollectiveCall::gather(data.data(), data.data() + kCount, kCount * sizeof(float), 1),
        CollectiveCall::scan(data.data(), data.data() + kCount, kCount, Dtype::kFloat32, ReduceOp::kSum)};
  };
  for (std::size_t i = 0; i < make_calls({}).size(); ++i) {
    *changed_ = false;
    run_ranks(3, [&](const JobGroup& group) {
      Communicator communicator(group);
      Communicator all_have_begun(group);
      const std::span<float> data = job_buffer(group, 4 * kCount, 1);
      const CollectiveCall call = make_calls(data)[i];
      Request begun = communicator.start(call);
      all_have_begun.barrier();
      if (group.rank == 0) {
        begun = Request();
        std::fill(data.begin(), data.end(), 1000.f);
        *changed_ = true;
      } else {
        await_change();
        if (call.kind == CollectiveKind::kGather && group.rank == 2) return;  // It only gives, and rank 1 may be gone.
        EXPECT_THROW(begun.wait(), CollectiveMismatch) << name_of(call.kind);
        EXPECT_EQ(std::count(data.begin(), data.end(), 1000.f), 0) << name_of(call.kind);
      }
    });
  }
}

TEST_F(FailedGiver, WaitsForThoseWhoReadItsDataBeforeItLeaves) {
  constexpr std::size_t kMany = std::size_t{4} << 20;
  for (int round = 0; round < (is_sanitized() ? 3 : 20); ++round)
    run_ranks(3, [&](const JobGroup& group) {
      Communicator communicator(group);
      Communicator all_have_begun(group);
      const std::span<float> data = job_buffer(group, kMany, static_cast<float>(group.rank));
      const CollectiveCall call = CollectiveCall::broadcast(data.data(), data.size_bytes(), 0);
      Request begun = communicator.start(call);
      all_have_begun.barrier();
      if (group.rank == 0) {
        pause(round);
        begun = Request();
        std::fill(data.begin(), data.end(), 1000.f);
        return;
      }
      try {
        begun.wait();
        EXPECT_EQ(static_cast<std::size_t>(std::count(data.begin(), data.end(), 0.f)), kMany);
      } catch (const CollectiveMismatch&) {
        EXPECT_EQ(std::count(data.begin(), data.end(), 1000.f), 0);
      }
    });
}

/// A message of its fails between the beginning of its call and the end.
TEST_F(FailedGiver, WaitsForThemAlsoWhereAMessageFailed) {
  constexpr std::size_t kMany = std::size_t{4} << 20;
  for (int round = 0; round < (is_sanitized() ? 3 : 20); ++round) {
    *changed_ = false;
    run_ranks(2, [&](const JobGroup& group) {
      Communicator communicator(group);
      Communicator all_have_begun(group);
      const std::span<float> data = job_buffer(group, kMany, 1);
      const CollectiveCall call = CollectiveCall::all_reduce(data.data(), kMany, Dtype::kFloat32, ReduceOp::kSum);
      if (group.rank == 1) {
        all_have_begun.barrier();
        EXPECT_THROW(communicator.run(call), CollectiveMismatch);
        *changed_ = true;
        return;
      }
      std::vector<float> more(1 << 20);
      Request message = communicator.isend(std::span(more), 1);
      const Request begun = communicator.start(call);
      all_have_begun.barrier();
      pause(round);
      message = Request();  // Which breaks the group.
      EXPECT_THROW(begun.wait(), CollectiveMismatch);
      std::fill(data.begin(), data.end(), 1000.f);
      await_change();
      EXPECT_EQ(static_cast<std::size_t>(std::count(data.begin(), data.end(), 1000.f)), kMany);
    });
  }
}

TEST_F(FailedGiver, EndsItsMessagesAndCallsBack) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    int value = 0;
    bool called = false;
    const Request receive = communicator.irecv(std::span(&value, 1), 1 - group.rank);
    receive.then([&] { called = true; });
    if (group.rank == 0) {
      EXPECT_THROW(communicator.barrier(), CollectiveMismatch);
    } else {
      EXPECT_THROW(communicator.broadcast(std::span(&value, 1), 0), CollectiveMismatch);
    }
    EXPECT_TRUE(called);
    EXPECT_THROW(receive.wait(), CollectiveMismatch);
  });
}

}  // namespace
}  // namespace retinue::test
