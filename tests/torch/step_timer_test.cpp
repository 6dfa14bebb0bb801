// Where the time of a DistributedDataParallel's steps goes.
#include "retinue/progress/step_timer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <thread>

#include "ipc/records/recorded_calls.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "support/fork_shared.h"
#include "support/ranks.h"
#include "support/wait_until.h"
#include "torch/trained_net.h"

namespace retinue {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr milliseconds kLateness(200);

/// Rank 1 begins to average its gradients so long after rank 0 has begun.
StepTimes late_step(StepTimer& timer, DistributedDataParallel<torch::nn::Sequential>& model, const ProcessGroup& group,
                    const JobGroup& members, std::atomic<std::uint64_t>& calls_before) {
  const auto calls_of_0 = [&] { return count_recorded_calls(*members.memory, members.process_slots[0]); };
  retinue::barrier(group);
  if (group->getRank() == 1) calls_before = 0;
  retinue::barrier(group);
  if (group->getRank() == 0) calls_before = calls_of_0();
  timer.step();
  const torch::Tensor batch = test::part_of(0, group, group->getRank());
  timer.data_loaded();
  const torch::Tensor loss = model.forward(batch).sum();
  if (group->getRank() == 1) {
    EXPECT_TRUE(test::wait_until([&] { return calls_before > 0 && calls_of_0() > calls_before; }));
    std::this_thread::sleep_for(kLateness);
  }
  loss.backward();
  return timer.step();
}

TEST(StepTimerOfTraining, RanksWaitForTheGradientsOfALateRank) {
  const test::ForkShared<std::atomic<std::uint64_t>> calls_before;
  test::run_ranks(2, [&](const JobGroup& members) {
    at::set_num_threads(1);
    const ProcessGroup group = init_process_group(members);
    const auto net = test::seeded(1, [] { return test::make_mlp(); });
    DistributedDataParallel<torch::nn::Sequential> model(net, group);
    StepTimer timer;
    for (int step = 0; step < 2; ++step) {
      const StepTimes times = late_step(timer, model, group, members, *calls_before);
      EXPECT_EQ(times.data + times.compute + times.waiting + times.communication, times.total);
      EXPECT_GT(times.data, nanoseconds(0));
      EXPECT_GT(times.compute, nanoseconds(0));
      if (group->getRank() == 0) {
        EXPECT_GE(times.waiting, kLateness / 2) << "a part of it may be in what rank 0 computed meanwhile";
        EXPECT_GT(times.waiting, times.communication);
      } else {
        EXPECT_GE(times.compute, kLateness);
      }
    }
    retinue::barrier(group);
  });
}

}  // namespace
}  // namespace retinue
