#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "retinue/collective/communicator.h"
#include "retinue/collective/split.h"
#include "support/ranks.h"
#include "support/says.h"

namespace retinue::test {
namespace {

using namespace std::chrono_literals;

template <class Expected, class Call>
std::string text_of(Call call) {
  try {
    call();
  } catch (const Expected& error) {
    return error.what();
  }
  ADD_FAILURE() << "the barrier ended well";
  return {};
}

TEST(MonitoredBarrier, IsABarrier) {
  run_ranks(3, [](const JobGroup& world) {
    Communicator group(world);
    for (int i = 0; i < 100; ++i) group.monitored_barrier({.wait_all_ranks = i % 2 == 0});
    if (world.rank == 1)
      group.barrier();
    else
      group.monitored_barrier();
  });
}

TEST(MonitoredBarrier, NamesAllThatDidNotComeToAll) {
  for (const bool wait_all_ranks : {false, true})
    run_ranks(4, [wait_all_ranks](const JobGroup& world) {
      Communicator control(world);
      Communicator group(
          {.memory = world.memory, .name = "watched", .rank = world.rank, .process_slots = world.process_slots});
      Communicator evens_and_odds(*split(control, {.color = world.rank % 2}));
      evens_and_odds.barrier();                    // So that the evens come within the timeout.
      if (world.rank % 2 == 1) control.barrier();  // When the others have given up.
      const std::string text =
          text_of<TimeoutError>([&] { group.monitored_barrier({.timeout = 1s, .wait_all_ranks = wait_all_ranks}); });
      EXPECT_TRUE(says(text, "missing: rank 1 (pid ") && says(text, "; rank 3 (pid ")) << text;
      EXPECT_FALSE(says(text, "; rank 2 (pid ") || says(text, "; rank 0 (pid ")) << text;
      EXPECT_TRUE(says(text, "monitored_barrier_test.cpp:")) << text;
      if (world.rank % 2 == 0) control.barrier();
      EXPECT_THROW(group.barrier(), TimeoutError);
    });
}

TEST(MonitoredBarrier, NamesAllHoweverMany) {
  run_ranks(20, [](const JobGroup& world) {
    Communicator control(world);
    Communicator group(
        {.memory = world.memory, .name = "watched", .rank = world.rank, .process_slots = world.process_slots});
    if (world.rank == 0) {
      const std::string text = text_of<TimeoutError>([&] { group.monitored_barrier({.timeout = 100ms}); });
      EXPECT_TRUE(says(text, " passed without ranks 1-19; missing: rank 1 (pid ")) << text;
      EXPECT_TRUE(says(text, "; and ranks 17-19")) << text;
    }
    control.barrier();
  });
}

TEST(MonitoredBarrier, EndsAtOnceWhenAMemberIsLost) {
  run_ranks(3,
            [](const JobGroup& world) {
              Communicator group(world);
              group.barrier();
              if (world.rank == 2) raise(SIGKILL);
              try {
                group.monitored_barrier({.timeout = 10min});
                ADD_FAILURE() << "the barrier ended well";
              } catch (const PeerLost& lost) {
                EXPECT_EQ(lost.ranks(), std::vector<int>{2});
              }
            },
            {.killed = {2}});
}

TEST(MonitoredBarrier, WaitsForTheOthersOfALostOne) {
  run_ranks(4,
            [](const JobGroup& world) {
              Communicator group(world);
              const std::vector<std::uint32_t>& slots = world.process_slots;
              group.barrier();
              if (world.rank == 2) raise(SIGKILL);
              if (world.rank == 3) {
                Communicator control(
                    {.memory = world.memory, .name = "control", .rank = 1, .process_slots = {slots[0], slots[3]}});
                control.barrier();
                EXPECT_THROW(group.barrier(), PeerLost);
                return;
              }
              try {
                group.monitored_barrier({.timeout = 1s, .wait_all_ranks = true});
                ADD_FAILURE() << "the barrier ended well";
              } catch (const PeerLost& lost) {
                const std::string text = lost.what();
                EXPECT_EQ(lost.ranks(), std::vector<int>{2}) << text;
                EXPECT_TRUE(says(text, "rank 3 (pid ")) << text;
                EXPECT_TRUE(says(text, "; rank 2 (pid ") && says(text, "died")) << text;
              }
              if (world.rank != 0) return;
              Communicator control(
                  {.memory = world.memory, .name = "control", .rank = 0, .process_slots = {slots[0], slots[3]}});
              control.barrier();
            },
            {.killed = {2}});
}

TEST(MonitoredBarrier, EndsAtOnceWhenNobodyElseCanCome) {
  run_ranks(2,
            [](const JobGroup& world) {
              Communicator group(world);
              if (world.rank == 1) raise(SIGKILL);
              EXPECT_THROW(group.monitored_barrier({.timeout = 10min, .wait_all_ranks = true}), PeerLost);
            },
            {.killed = {1}});
}

TEST(MonitoredBarrier, LeavesTheGroupsTimeoutAsItWas) {
  run_ranks(2, [](const JobGroup& world) {
    Communicator group(world);
    group.set_timeout(50ms);
    Communicator control(
        {.memory = world.memory, .name = "control", .rank = world.rank, .process_slots = world.process_slots});
    group.monitored_barrier({.timeout = 10min});
    if (world.rank == 0) {
      EXPECT_THROW(group.barrier(), TimeoutError);
    }
    control.barrier();
  });
}

TEST(MonitoredBarrier, WithATimeoutOfItsOwnIsNoDeadlock) {
  run_ranks(2, [](const JobGroup& group) {
    JobGroup other = group;
    other.name = "other";
    Communicator first(group);
    Communicator second(other);
    if (group.rank == 0) {
      EXPECT_THROW(first.monitored_barrier({.timeout = 4s}), TimeoutError);
    }
    second.barrier();
  });
}

}  // namespace
}  // namespace retinue::test
