// Where a StepTimer says that the time of steps went, compared with what the ranks did and recorded.
#include "retinue/progress/step_timer.h"

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <thread>

#include "ipc/memory/process_table.h"
#include "ipc/records/recorded_calls.h"
#include "process/trace/merged_calls.h"
#include "progress/log_folder.h"
#include "progress/waits_for_ranks.h"
#include "retinue/collective/communicator.h"
#include "retinue/ipc/detail/blocked_time.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "support/wait_until.h"

namespace retinue {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using test::run_ranks;
using test::says;

/// What is measured takes at least so long.
constexpr milliseconds kWork(40);

void work() {
  std::this_thread::sleep_for(kWork);
}

void await_calls(const JobGroup& group, int rank, std::uint64_t count) {
  EXPECT_TRUE(test::wait_until([&] {
    return count_recorded_calls(*group.memory, group.process_slots[static_cast<std::size_t>(rank)]) >= count;
  }));
}

void await_calls_of_all(const JobGroup& group, std::uint64_t count) {
  for (int rank = 0; rank < static_cast<int>(group.process_slots.size()); ++rank) await_calls(group, rank, count);
}

void expect_parts_are_the_whole(const StepTimes& times) {
  EXPECT_EQ(times.data + times.compute + times.waiting + times.communication, times.total);
  for (const nanoseconds part : {times.data, times.compute, times.waiting, times.communication})
    EXPECT_GE(part, nanoseconds(0));
}

/// By the recordings of all ranks, which the command's trace and the report read, too.
nanoseconds recorded_waiting(const JobGroup& group, std::uint64_t first_record) {
  const MergedCalls calls(read_recordings(*group.memory, group.process_slots));
  nanoseconds sum(0);
  const auto rank = static_cast<std::uint32_t>(group.rank);
  for (std::uint32_t i = 0; i < calls.processes()[rank].recording.calls.size(); ++i)
    if (calls.call_of({rank, i}).record >= first_record) sum += nanoseconds(calls.times_of({rank, i})->waiting_ns);
  return sum;
}

TEST(Intervals, OverlapIsCountedOnce) {
  const Intervals blocked = {{10, 20}, {30, 40}, {50, 60}};
  EXPECT_EQ(overlap_ns(blocked, {}), 0u);
  EXPECT_EQ(overlap_ns({}, {{1, 100}}), 0u);
  EXPECT_EQ(overlap_ns(blocked, {{0, 100}}), 30u);
  EXPECT_EQ(overlap_ns(blocked, {{35, 55}, {15, 32}}), 5u + 2 + 5 + 5);
  EXPECT_EQ(overlap_ns(blocked, {{12, 18}, {13, 14}, {16, 19}, {12, 13}}), 7u);
  EXPECT_EQ(overlap_ns(blocked, {{20, 30}, {40, 50}, {60, 70}}), 0u);
}

TEST(StepTimer, OthersWaitForALateRank) {
  run_ranks(3, [](const JobGroup& group) {
    Communicator communicator(group);
    std::vector<float> values(1000, 1);
    communicator.all_reduce(std::span(values));
    await_calls_of_all(group, 1);
    StepTimer timer;
    if (group.rank == 1) {
      await_calls(group, 0, 2);
      await_calls(group, 2, 2);
      work();
    }
    communicator.all_reduce(std::span(values));
    await_calls_of_all(group, 2);
    const StepTimes times = timer.step();
    expect_parts_are_the_whole(times);
    EXPECT_EQ(times.steps, 1u);
    EXPECT_EQ(times.data, nanoseconds(0));
    EXPECT_GE(group.rank == 1 ? times.compute : times.waiting, kWork);
    EXPECT_EQ(times.waiting == nanoseconds(0), group.rank == 1) << "it was the last";
    EXPECT_NEAR(times.waiting.count(), recorded_waiting(group, 2).count(), 200'000) << "nanoseconds";
    communicator.barrier();
  });
}

TEST(StepTimer, CountsOfOverlappedCallsOnlyTheWait) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    communicator.barrier();
    await_calls_of_all(group, 1);
    StepTimer timer;
    if (group.rank == 1) {
      await_calls(group, 0, 2);
      work();
    }
    std::vector<float> values(1000, 1);
    const Request request =
        communicator.start(CollectiveCall::all_reduce(values.data(), values.size(), Dtype::kFloat32, ReduceOp::kSum));
    if (group.rank == 0) work();
    request.wait();
    await_calls_of_all(group, 2);
    const StepTimes times = timer.step();
    expect_parts_are_the_whole(times);
    EXPECT_GE(times.compute, kWork) << "which the call under way doesn't shorten";
    EXPECT_LE(times.waiting, recorded_waiting(group, 2));
    communicator.barrier();
  });
}

TEST(StepTimer, AReceiveWaitsForItsSender) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    communicator.barrier();
    await_calls_of_all(group, 1);
    StepTimer timer;
    std::vector<float> values(1000, 1);
    if (group.rank == 1) {
      await_calls(group, 0, 2);
      work();
      communicator.send(std::span(values), 0);
    } else {
      communicator.recv(std::span(values), 1);
    }
    const StepTimes times = timer.step();
    expect_parts_are_the_whole(times);
    EXPECT_GE(group.rank == 0 ? times.waiting : times.compute, kWork);
    communicator.barrier();
  });
}

TEST(StepTimer, FollowsNewGroupsOfTheSameName) {
  run_ranks(2, [](const JobGroup& group) {
    StepTimer timer;
    std::uint64_t calls = 0;
    for (int i = 0; i < 3; ++i) {
      Communicator communicator(group);
      for (int step = 0; step < 2; ++step) {
        timer.step();
        if (group.rank == step) {
          await_calls(group, 1 - step, calls + 1);
          work();
        }
        communicator.barrier();
        await_calls_of_all(group, ++calls);
        const StepTimes times = timer.step();
        expect_parts_are_the_whole(times);
        EXPECT_GE(group.rank == step ? times.compute : times.waiting, kWork) << "group " << i << ", step " << step;
      }
    }
  });
}

TEST(StepTimer, TimeUntilDataAreLoadedIsDataLoading) {
  StepTimer timer;
  work();
  timer.data_loaded();
  work();
  const StepTimes times = timer.step();
  expect_parts_are_the_whole(times);
  EXPECT_GE(times.data, kWork);
  EXPECT_GE(times.compute, kWork);
  EXPECT_EQ(times.waiting + times.communication, nanoseconds(0)) << "there are no other ranks";
  const StepTimes next = timer.step();
  EXPECT_EQ(next.data, nanoseconds(0));
  EXPECT_EQ(timer.sum().steps, 2u);
  EXPECT_EQ(timer.sum().total, times.total + next.total);
  ASSERT_EQ(timer.sums_of_ranks().size(), 1u);
  EXPECT_EQ(timer.sums_of_ranks()[0].times.total, timer.sum().total);
}

TEST(StepTimer, IsOnlyOneOnAThread) {
  StepTimer timer;
  EXPECT_TRUE(says(test::usage_error_of([] { StepTimer second; }), "has a StepTimer already"));
  std::thread([] { StepTimer of_another_thread; }).join();
  run_ranks(2, [](const JobGroup& group) {  // Forks of this thread.
    Communicator communicator(group);
    communicator.barrier();
    StepTimer of_another_process;
    communicator.barrier();
    EXPECT_GT(of_another_process.step().total, nanoseconds(0));
  });
}

TEST(StepTimer, MayBeDestroyedOnAnotherThread) {
  auto timer = std::make_unique<StepTimer>();
  std::thread([&] { timer.reset(); }).join();
  run_ranks(2, [](const JobGroup& group) { Communicator(group).barrier(); });
  { const detail::BlockedScope call; }
  StepTimer next;
  EXPECT_GE(next.step().total, nanoseconds(0));
}

TEST(StepTimer, WithoutARecorderWaitingIsCommunication) {
  setenv("RETINUE_FLIGHT_RECORDER", "0", 1);
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    communicator.barrier();
    StepTimer timer;
    if (group.rank == 1) work();
    communicator.barrier();
    const StepTimes times = timer.step();
    expect_parts_are_the_whole(times);
    EXPECT_EQ(times.waiting, nanoseconds(0));
    EXPECT_GT(times.communication, nanoseconds(0));
  });
  unsetenv("RETINUE_FLIGHT_RECORDER");
}

TEST(StepTimer, Rank0LogsTheTimesOfAllRanks) {
  const test::LogFolder folder;
  run_ranks(3, [&](const JobGroup& group) {
    process_slot(*group.memory, group.memory->own_slot()).rank = group.rank;
    Communicator communicator(group);
    StepTimer timer;
    for (int i = 0; i < 4; ++i) {
      if (group.rank == 2) work();
      communicator.barrier();
      timer.step();
    }
    communicator.barrier();  // All ranks have told.
    const std::vector<RankStepTimes> ranks = timer.sums_of_ranks();
    std::vector<std::int64_t> compute(3);
    const std::int64_t own = timer.sum().compute.count();
    communicator.all_gather(std::span(&own, 1), std::span(compute));
    ASSERT_EQ(ranks.size(), 3u);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(ranks[rank].rank, rank);
      EXPECT_EQ(ranks[rank].times.compute.count(), compute[rank]);
      EXPECT_EQ(ranks[rank].times.steps, 4u);
      expect_parts_are_the_whole(ranks[rank].times);
    }
    if (group.rank == 0) {
      SummaryWriter writer(folder.path());
      timer.log(writer, 4);
      timer.log(writer, 5);  // There is no new step.
      writer.close();
      const auto lines = test::json_lines(folder.text_of("scalars.jsonl"));
      ASSERT_EQ(lines.size(), 1u);
      const auto& scalars = lines[0]["scalars"];
      EXPECT_EQ(scalars["step_time/slowest_rank"], 2);
      EXPECT_DOUBLE_EQ(scalars["step_time/compute"], compute[0] / 4e9);
      EXPECT_DOUBLE_EQ(scalars["step_time_max/compute"], compute[2] / 4e9);
      EXPECT_DOUBLE_EQ(scalars["step_time_min/compute"], std::min(compute[0], compute[1]) / 4e9);
      EXPECT_NEAR(scalars["step_time_mean/compute"], (compute[0] + compute[1] + compute[2]) / 12e9, 1e-12);
    }
    communicator.barrier();
  });
}

}  // namespace
}  // namespace retinue
