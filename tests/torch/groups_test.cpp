#include "retinue/torch/groups.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/torch/messages.h"
#include "retinue/torch/process_group.h"
#include "support/captured_stderr.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "support/wait_until.h"
#include "torch/backend/shm_backend.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;
using test::run_ranks;
using test::says;
using test::usage_error_of;

/// The world ranks of a group's members, in the group's order, as its collectives see them.
std::vector<int> members_of(const ProcessGroup& group, int world_rank) {
  const at::Tensor own = torch::full({1}, world_rank, torch::kInt);
  const at::Tensor all = torch::zeros({group->getSize()}, torch::kInt);
  all_gather_into_tensor(all, own, group);
  const int* const data = all.const_data_ptr<int>();
  return {data, data + all.numel()};
}

class Groups : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, Groups, testing::Values("shm", "gloo"));

TEST_P(Groups, OfListedRanks) {
  run_ranks(4, [](const JobGroup& members) {
    const ProcessGroup world = init_process_group(members, {.backend = GetParam()});
    const ProcessGroup group = new_group({3, 0, 2}, world, {.group_name = "evens and three"});
    ASSERT_EQ(group.defined(), members.rank != 1);
    if (!group) return;
    EXPECT_EQ(group->getGroupName(), "evens and three");
    EXPECT_EQ(members_of(group, members.rank), (std::vector<int>{0, 2, 3}));
    at::Tensor ones = torch::ones({5});
    all_reduce(ones, group, {.async_op = true})->wait();
    EXPECT_TRUE(torch::equal(ones, torch::full({5}, 3.0f)));
    if (group->getRank() == 1) send(ones, group, 2);
    if (group->getRank() == 2) {
      EXPECT_EQ(recv(ones, group, 1), 1);
    }
  });
}

TEST_P(Groups, ByColourByHostAndBySize) {
  run_ranks(4, [](const JobGroup& members) {
    const ProcessGroup world = init_process_group(members, {.backend = GetParam()});
    const ProcessGroup reversed = split_group(world, {.color = members.rank % 2, .key = -members.rank});
    EXPECT_EQ(members_of(reversed, members.rank),
              members.rank % 2 == 0 ? (std::vector<int>{2, 0}) : (std::vector<int>{3, 1}));
    const ProcessGroup some = split_group(world, {.color = members.rank == 0 ? kNoColor : 7});
    EXPECT_EQ(some.defined(), members.rank != 0);
    EXPECT_EQ(members_of(split_by_host(world), members.rank), (std::vector<int>{0, 1, 2, 3}));
    EXPECT_EQ(members_of(new_subgroups(2, world), members.rank),
              members.rank < 2 ? (std::vector<int>{0, 1}) : (std::vector<int>{2, 3}));
    const ProcessGroup listed = new_subgroups_by_enumeration({{2, 0}, {3}}, world);
    EXPECT_EQ(listed.defined(), members.rank != 1);
    if (members.rank == 3) {
      EXPECT_EQ(listed->getSize(), 1);
    }
  });
}

TEST(ShmGroups, OfAWorldOfOne) {
  const ProcessGroup world = init_process_group();
  EXPECT_EQ(new_group({0}, world)->getSize(), 1);
  EXPECT_FALSE(new_group({}, world).defined());
  EXPECT_EQ(split_group(world)->getSize(), 1);
  EXPECT_FALSE(split_group(world, {.color = kNoColor}).defined());
  EXPECT_EQ(split_by_host(new_subgroups(1, world))->getRank(), 0);
  EXPECT_THROW(new_group({1}, world), UsageError);
  EXPECT_THROW(new_group({0, 0}, world), UsageError);
  EXPECT_THROW(new_subgroups(2, world), UsageError);
  EXPECT_THROW(split_group(world, {.color = -2}), UsageError);
  monitored_barrier(world);
}

TEST_P(Groups, WhatMakesNoSenseIsAnErrorOnAll) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup world = init_process_group(members, {.backend = GetParam()});
    EXPECT_TRUE(says(usage_error_of([&] { new_group({0, 2}, world); }), "rank 2 is outside"));
    EXPECT_TRUE(says(usage_error_of([&] { new_group({members.rank}, world); }), "different lists"));
    EXPECT_TRUE(says(usage_error_of([&] { new_subgroups(3, world); }), "groups of 3"));
    EXPECT_THROW(new_group({0}, world, {.timeout = 0ms}), UsageError);
    EXPECT_THROW(new_group({0}, ProcessGroup()), UsageError);
    barrier(world);
  });
}

TEST_P(Groups, OutsideOfAGroupABarrierIsNothingAndTheRestIsRefused) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup world = init_process_group(members, {.backend = GetParam()});
    const ProcessGroup group = new_group({1}, world);
    EXPECT_EQ(group.defined(), members.rank == 1);
    EXPECT_FALSE(barrier(group).defined());
    EXPECT_EQ(barrier(group, {.async_op = true}).defined(), members.rank == 1);
    monitored_barrier(group);
    const ZeroFirst guard(group);
    if (members.rank == 1) return;
    at::Tensor tensor = torch::ones({2});
    for (const std::string& text :
         {usage_error_of([&] { all_reduce(tensor, group); }), usage_error_of([&] { broadcast(tensor, group); }),
          usage_error_of([&] { reduce(tensor, group); }), usage_error_of([&] { send(tensor, group, 0); }),
          usage_error_of([&] { irecv(tensor, group, 0); }), usage_error_of([&] { split_group(group); })})
      EXPECT_TRUE(says(text, "this rank is not a member")) << text;
  });
}

TEST_P(Groups, BarriersMeetInTheirOrderWhereverTheyAre) {
  run_ranks(3, [](const JobGroup& members) {
    const ProcessGroup world = init_process_group(members, {.backend = GetParam()});
    if (members.rank == 0) barrier(world);
    for (int i = members.rank == 0 ? 1 : 0; i < 6; ++i) {
      if (i % (members.rank + 1) == 0)
        barrier(world, {.timeout = 10min});
      else
        barrier(world, {.async_op = true, .timeout = 10min})->wait();
    }
    EXPECT_EQ(world->getDefaultBackend()->getSequenceNumberForGroup(), 6u);
  });
}

TEST(ShmGroups, ACallMayHaveATimeoutOfItsOwn) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup control = init_process_group(members, {.group_name = "control"});
    const ProcessGroup world = init_process_group(members);
    barrier(world, {.timeout = 10min});
    at::Tensor tensor = torch::ones({2});
    EXPECT_TRUE(says(usage_error_of([&] { all_reduce(tensor, world, {.timeout = 0ms}); }), "must be greater than 0"));
    if (members.rank == 0) {
      EXPECT_THROW(all_reduce(tensor, world, {.timeout = 20ms}), TimeoutError);
    }
    barrier(control);
    if (members.rank == 1) {
      EXPECT_THROW(barrier(world), TimeoutError);
    }
  });
}

TEST(ShmGroups, DeviceIdsAreNccls) {
  const ProcessGroup world = init_process_group();
  EXPECT_TRUE(says(usage_error_of([&] { barrier(world, {.device_ids = {0}}); }), "nccl"));
}

TEST(ShmGroups, MonitoredBarrierNamesWhoDidNotCome) {
  run_ranks(3, [](const JobGroup& members) {
    const ProcessGroup control = init_process_group(members, {.group_name = "control"});
    const ProcessGroup world = init_process_group(members, {.group_name = "watched"});
    monitored_barrier(world);
    c10d::BarrierOptions by_c10d;
    by_c10d.timeout = 10min;
    world->getDefaultBackend()->monitoredBarrier(by_c10d, true);
    EXPECT_THROW(monitored_barrier(world, {.timeout = 0s}), UsageError);
    const ProcessGroup others = new_group({0, 1}, control);
    barrier(others);
    if (members.rank == 2) barrier(control);
    try {
      monitored_barrier(world, {.timeout = 1s, .wait_all_ranks = true});
      ADD_FAILURE() << "all came";
    } catch (const TimeoutError& error) {
      EXPECT_TRUE(says(error.what(), "missing: rank 2 (pid ")) << error.what();
    }
    if (members.rank != 2) barrier(control);
    EXPECT_EQ(members_of(split_group(control), members.rank).size(), 3u);
  });
}

TEST_P(Groups, AMonitoredBarrierMeetsBarriersAlone) {
  run_ranks(3, [](const JobGroup& members) {
    const ProcessGroup world = init_process_group(members, {.backend = GetParam()});
    if (members.rank == 0)
      monitored_barrier(world, {.timeout = 10min});
    else
      barrier(world);
    at::Tensor one = torch::ones({3});
    try {
      if (members.rank == 0)
        monitored_barrier(world, {.timeout = 10min});
      else
        all_reduce(one, world);
      ADD_FAILURE() << "the calls went together";
    } catch (const CollectiveMismatch& error) {
      EXPECT_TRUE(says(error.what(), "barrier in monitored_barrier at ")) << error.what();
      EXPECT_TRUE(says(error.what(), "all_reduce(fp32, 3, sum) at ")) << error.what();
    }
  });
}

TEST_P(Groups, MismatchesSayWhatTheProgramCalled) {
  const auto check = [](const std::function<void(const ProcessGroup&)>& call, const char* words) {
    run_ranks(2, [&](const JobGroup& members) {
      const ProcessGroup world = init_process_group(members, {.backend = GetParam()});
      try {
        members.rank == 0 ? call(world) : static_cast<void>(barrier(world));
        ADD_FAILURE() << "the calls went together";
      } catch (const CollectiveMismatch& error) {
        EXPECT_TRUE(says(error.what(), words) && says(error.what(), "groups_test.cpp:")) << error.what();
      }
    });
  };
  check([](const ProcessGroup& world) { split_group(world); }, " bytes) in split_group at ");
  check([](const ProcessGroup& world) { new_group({0, 1}, world); }, " bytes) in new_group at ");
  check([](const ProcessGroup& world) { new_subgroups(1, world); }, " bytes) in new_subgroups at ");
  check(
      [](const ProcessGroup& world) {
        new_subgroups_by_enumeration({{0}, {1}}, world);
      },
      " bytes) in new_subgroups_by_enumeration at ");
  check([](const ProcessGroup& world) { split_by_host(world); }, " bytes) in split_by_host at ");
}

TEST_P(Groups, ADestroyedGroupIsClosedHereAndLostThere) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup world = init_process_group(members, {.backend = GetParam()});
    ProcessGroup group = split_group(world);
    const ProcessGroup copy = group;
    barrier(group);
    if (members.rank == 0) {
      destroy_process_group(group);
      EXPECT_FALSE(group.defined());
      at::Tensor tensor = torch::ones({2});
      EXPECT_THROW(all_reduce(tensor, copy), Closed);
      EXPECT_THROW(isend(tensor, copy, 1), Closed);
      EXPECT_THROW(split_group(copy), Closed);
      destroy_process_group(group);
    } else {
      EXPECT_THROW(barrier(group), PeerLost);
    }
    barrier(world);
  });
}

TEST_P(Groups, ManyThatOverlapInAnyOrder) {
  constexpr int kRanks = 8;
  run_ranks(kRanks, [](const JobGroup& members) {
    const ProcessGroup world = init_process_group(members, {.backend = GetParam()});
    std::mt19937 random(11);
    std::vector<std::vector<int>> lists;
    std::vector<ProcessGroup> groups;
    for (int i = 0; i < 24; ++i) {
      std::vector<int> ranks(kRanks);
      std::iota(ranks.begin(), ranks.end(), 0);
      std::shuffle(ranks.begin(), ranks.end(), random);
      ranks.resize(1 + random() % kRanks);
      groups.push_back(new_group(ranks, world));
      std::sort(ranks.begin(), ranks.end());
      lists.push_back(ranks);
    }
    std::vector<std::size_t> order(groups.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      if (!groups[i]) continue;
      EXPECT_EQ(members_of(groups[i], members.rank), lists[i]) << i;
    }
    // Each rank may begin calls of different groups in an order of its own.
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(members.rank)));
    std::vector<at::Tensor> sums(groups.size());
    std::vector<Work> works(groups.size());
    for (const std::size_t i : order)
      if (groups[i]) works[i] = all_reduce(sums[i] = torch::ones({1}), groups[i], {.async_op = true});
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (!groups[i]) continue;
      works[i]->wait();
      EXPECT_EQ(sums[i].item<float>(), static_cast<float>(lists[i].size()));
    }
    for (const std::size_t i : order) destroy_process_group(groups[i]);
    barrier(world);
  });
}

TEST_P(Groups, ZeroFirstOfAProcessGroup) {
  run_ranks(3, [](const JobGroup& members) {
    const ProcessGroup world = init_process_group(members, {.backend = GetParam()});
    {
      const ZeroFirst guard(world);
      EXPECT_EQ(guard.is_first(), members.rank == 0);
    }
    EXPECT_EQ(zero_first(world, [&] { return members.rank; }), members.rank);
    const auto fail = [&] { zero_first(world, [] { throw UsageError("no such folder"); }); };
    const std::string text = usage_error_of(fail);
    EXPECT_TRUE(says(text, "no such folder")) << text;
    barrier(world);
  });
}

TEST(ShmGroups, ReportLateRanksAsTheyOrTheirParentsSay) {
  const test::CapturedStderr captured;
  run_ranks(2, [&](const JobGroup& members) {
    captured.begin();
    const ProcessGroup world = init_process_group(members, {.late_after = 1100ms});
    const ProcessGroup heir = new_group({0, 1}, world);
    const ProcessGroup silent = new_group({0, 1}, world, {.late_after = 0ms});
    EXPECT_EQ(ShmBackend::of(*silent)->waits().late_after, 0ns);
    for (const ProcessGroup& group : {world, heir}) {
      if (members.rank == 1) {
        EXPECT_TRUE(test::wait_until([&] { return says(captured.text(), "This report repeats"); })) << captured.text();
        EXPECT_TRUE(says(captured.text(), "rank 1 is late")) << captured.text();
        captured.clear();
      }
      barrier(group);
    }
  });
}

}  // namespace
}  // namespace retinue
