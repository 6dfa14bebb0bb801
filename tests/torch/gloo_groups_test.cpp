// Ranks that are late, leave or die in groups of gloo.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <torch/torch.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "retinue/torch/groups.h"
#include "retinue/torch/messages.h"
#include "support/fork_shared.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/wait_until.h"
#include "torch/gloo_scene.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;
using test::by_gloo;
using test::number;
using test::run_ranks;
using test::says;

TEST(GlooGroups, EndForTheOthersThoughWorksAreHeld) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup control = by_gloo(members, "control");
    ProcessGroup group = by_gloo(members);
    at::Tensor got = number(-1);
    const Work sent = isend(number(members.rank), group, 1 - members.rank);
    recv(got, group, 1 - members.rank);
    sent->wait();
    if (members.rank == 0) destroy_process_group(group);
    if (members.rank == 1) {
      EXPECT_THROW(barrier(group), PeerLost);
    }
    barrier(control);
  });
}

TEST(GlooGroups, NameAllThatMissAMonitoredBarrier) {
  run_ranks(3, [](const JobGroup& members) {
    const ProcessGroup group = by_gloo(members);
    const ProcessGroup control = by_gloo(members, "control");
    monitored_barrier(group);
    if (members.rank == 2) barrier(control);
    try {
      monitored_barrier(group, {.timeout = 2s});
      ADD_FAILURE() << "all came";
    } catch (const TimeoutError& error) {
      EXPECT_TRUE(says(error.what(), "barrier in monitored_barrier at ")) << error.what();
      EXPECT_TRUE(says(error.what(), "missing: rank 2")) << error.what();
    }
    if (members.rank != 2) barrier(control);
    EXPECT_THROW(barrier(group), TimeoutError);
    EXPECT_THROW(isend(number(1), group, (members.rank + 1) % 3), TimeoutError);
    barrier(control);
  });
}

/// While the first of them finds out who is missing, and has let go of the others.
TEST(GlooGroups, WhoComesWhenTheTimeIsJustOverReadsWhatTheOthersDo) {
  run_ranks(3, [](const JobGroup& members) {
    const ProcessGroup group = by_gloo(members);
    const ProcessGroup control = by_gloo(members, "control");
    barrier(control);
    if (members.rank == 2) std::this_thread::sleep_for(2600ms);
    try {
      monitored_barrier(group, {.timeout = 2s});
      ADD_FAILURE() << "all came";
    } catch (const TimeoutError& error) {
      EXPECT_TRUE(says(error.what(), "missing: rank 2")) << error.what();
    }
    barrier(control);
  });
}

TEST(GlooGroups, AMonitoredBarrierEndsAtOnceWithoutADeadRank) {
  run_ranks(3,
            [](const JobGroup& members) {
              const ProcessGroup group = by_gloo(members);
              barrier(group);
              if (members.rank == 1) raise(SIGKILL);
              try {
                monitored_barrier(group, {.timeout = 10min});
                ADD_FAILURE() << "all came";
              } catch (const PeerLost& error) {
                EXPECT_TRUE(says(error.what(), "barrier in monitored_barrier at ")) << error.what();
                EXPECT_TRUE(says(error.what(), "rank 1 (pid ")) << error.what();
                EXPECT_EQ(error.ranks(), std::vector<int>{1});
              }
            },
            {.killed = {1}});
}

/// Its child holds the connections open, and where it is rank 0 those of the store, too.
TEST(GlooGroups, ADeadRankIsMissedAlsoWhereItsChildLives) {
  for (const int dead : {0, 1}) {
    const test::ForkShared<std::atomic<int>> done;
    run_ranks(3,
              [&](const JobGroup& members) {
                const ProcessGroup group = by_gloo(members);
                barrier(group);
                if (members.rank == dead) {
                  if (fork() == 0) {
                    prctl(PR_SET_PDEATHSIG, 0);
                    test::wait_until([&] { return *done == 2; });
                    _exit(0);
                  }
                  raise(SIGKILL);
                }
                try {
                  barrier(group, {.timeout = 10min});
                  ADD_FAILURE() << "all came";
                } catch (const PeerLost& error) {
                  EXPECT_TRUE(says(error.what(), c10::str("rank ", dead, " (pid "))) << error.what();
                  EXPECT_TRUE(says(error.what(), ") has ended")) << error.what();
                  // Who fails ends, too; without a store nobody is told by whom.
                  if (dead != 0) {
                    EXPECT_EQ(error.ranks().size(), 1u);
                  }
                  EXPECT_EQ(error.ranks().at(0), dead);
                }
                ++*done;
              },
              {.killed = {dead}});
  }
}

/// Of several at one address gloo names none.
TEST(GlooGroups, ARankThatLeftIsNamed) {
  run_ranks(3, [](const JobGroup& members) {
    ProcessGroup group = by_gloo(members);
    barrier(group);
    if (members.rank == 1) {
      destroy_process_group(group);
      Communicator(members).barrier();  // It lives on.
      return;
    }
    try {
      barrier(group);
      ADD_FAILURE() << "rank 1 has left";
    } catch (const PeerLost& error) {
      EXPECT_TRUE(says(error.what(), "rank 1 (pid ")) << error.what();
      EXPECT_TRUE(says(error.what(), ") has left the group")) << error.what();
      EXPECT_EQ(error.ranks(), std::vector<int>{1});
    }
    Communicator(members).barrier();
  });
}

TEST(GlooGroups, AMonitoredBarrierOfAllAwaitsThoseThatAreLate) {
  run_ranks(4,
            [](const JobGroup& members) {
              const ProcessGroup group = by_gloo(members);
              const ProcessGroup control = new_group({0, 2, 3}, group);
              barrier(group);
              if (members.rank == 1) raise(SIGKILL);
              if (members.rank == 3) {
                barrier(control);
                return;
              }
              try {
                monitored_barrier(group, {.timeout = 3s, .wait_all_ranks = true});
                ADD_FAILURE() << "all came";
              } catch (const PeerLost& error) {
                EXPECT_TRUE(says(error.what(), "; missing: rank 1 (pid ")) << error.what();
                EXPECT_TRUE(says(error.what(), "; rank 3 (pid ")) << error.what();
              }
              barrier(control);
            },
            {.killed = {1}});
}

TEST(GlooGroups, MayBeLeftAsSoonAsTheyAreMade) {
  run_ranks(3, [](const JobGroup& members) {
    const ProcessGroup group = by_gloo(members);
    for (int i = 0; i < 30; ++i) split_group(group);
    barrier(group);
  });
}

}  // namespace
}  // namespace retinue
