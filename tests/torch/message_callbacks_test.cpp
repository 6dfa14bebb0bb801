// What futures' callbacks may do: begin operations, wait for others, and drop the group; on whatever thread they run.
#include <gtest/gtest.h>
#include <time.h>
#include <torch/torch.h>

#include <chrono>
#include <csignal>
#include <future>
#include <thread>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/torch/messages.h"
#include "support/ranks.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;
using test::run_ranks;
using Future = c10::ivalue::Future;

std::chrono::nanoseconds cpu_time() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

/// Two messages that end at once, whose callbacks wait for each other.
TEST(MessageCallbacks, MayWaitForWhatEndedWithThem) {
  for (const bool helper_waits : {true, false})
    run_ranks(3,
              [&](const JobGroup& members) {
                const ProcessGroup group = init_process_group(members);
                if (members.rank == 2) {
                  barrier(group);
                  kill(getpid(), SIGKILL);
                }
                const Work one = irecv(torch::zeros({4}), group, 2, 1);
                const Work other = irecv(torch::zeros({4}), group, 2, 2);
                std::promise<void> both[2];
                one->getFuture()->addCallback([&](Future&) {
                  EXPECT_THROW(other->wait(), PeerLost);
                  both[0].set_value();
                });
                other->getFuture()->addCallback([&](Future&) {
                  EXPECT_THROW(one->wait(), PeerLost);
                  both[1].set_value();
                });
                barrier(group);
                if (!helper_waits) {
                  EXPECT_THROW(one->wait(), PeerLost);
                }
                for (std::promise<void>& each : both) each.get_future().wait();
              },
              {.killed = {2}});
}

TEST(MessageCallbacks, MayWaitByOtherMeansForAMessage) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members);
    if (members.rank == 1) {
      send(torch::ones({1}), group, 0, 1);
      recv(torch::zeros({1}), group, 0, 3);
      send(torch::ones({1}), group, 0, 2);
      return;
    }
    const Work late = irecv(torch::zeros({1}), group, 1, 2);
    const Work early = irecv(torch::zeros({1}), group, 1, 1);
    std::promise<void> called;
    early->getFuture()->addCallback([&](Future&) {
      send(torch::ones({1}), group, 1, 3);
      while (!late->isCompleted()) std::this_thread::yield();  // This thread moves nothing on meanwhile.
      called.set_value();
    });
    if (!early->isCompleted()) early->wait();
    called.get_future().wait();
  });
}

TEST(MessageCallbacks, MayDropTheGroup) {
  for (const bool waits : {true, false})
    run_ranks(2, [&](const JobGroup& members) {
      const ProcessGroup end = init_process_group(members, {.group_name = "end"});
      ProcessGroup group = init_process_group(members);
      // The helper is there, and idle.
      const int peer = 1 - members.rank;
      const Work before = irecv(torch::zeros({1}), group, peer, 1);
      std::this_thread::sleep_for(1ms);
      send(torch::ones({1}), group, peer, 1);
      before->wait();
      const Work work = irecv(torch::zeros({1}), group, peer, 2);
      std::promise<void> dropped;
      work->getFuture()->addCallback([&](Future&) {
        group.reset();
        dropped.set_value();
      });
      {
        const ProcessGroup held = group;  // The peer may be ahead.
        barrier(end);
        isend(torch::ones({1}), held, peer, 2);
      }
      if (waits) work->wait();
      dropped.get_future().wait();
      barrier(end);
    });
}

TEST(MessageCallbacks, MayDropTheGroupOnTheHelperOfCollectives) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup end = init_process_group(members, {.group_name = "end"});
    ProcessGroup group = init_process_group(members);
    if (members.rank == 1) {
      barrier(end);
      barrier(group);
      return;
    }
    std::promise<void> dropped;
    const Work work = barrier(group, {.async_op = true});
    work->getFuture()->addCallback([&](Future&) {
      group.reset();
      dropped.set_value();
    });
    barrier(end);
    dropped.get_future().wait();
  });
}

TEST(MessageCallbacks, MayMakeBlockingCollectives) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup end = init_process_group(members, {.group_name = "end"});
    const ProcessGroup group = init_process_group(members);
    const auto sum_is = [&](float wanted) {
      at::Tensor one = torch::ones({1});
      all_reduce(one, group);
      EXPECT_EQ(one.item<float>(), wanted);
    };
    if (members.rank == 1) {
      barrier(end);
      for (int i = 0; i < 2; ++i) barrier(group);
      sum_is(2);
      return;
    }
    std::promise<void> done;
    const Work first = barrier(group, {.async_op = true});
    const Work second = barrier(group, {.async_op = true});  // Behind which the callback's own comes.
    first->getFuture()->addCallback([&](Future&) {
      sum_is(2);
      done.set_value();
    });
    barrier(end);
    done.get_future().wait();
    second->wait();
  });
}

TEST(MessageCallbacks, SleepWhileTheyWait) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members);
    if (members.rank == 1) {
      std::this_thread::sleep_for(5ms);  // So that rank 0's helper has it.
      send(torch::ones({1}), group, 0, 1);
      std::this_thread::sleep_for(300ms);
      send(torch::ones({1}), group, 0, 2);
      return;
    }
    const Work work = irecv(torch::zeros({1}), group, 1, 1);
    std::promise<double> cost;
    work->getFuture()->addCallback([&](Future&) {
      const auto before = cpu_time();
      const auto start = std::chrono::steady_clock::now();
      recv(torch::zeros({1}), group, 1, 2);
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
      cost.set_value(std::chrono::duration<double>(cpu_time() - before) / time);
    });
    EXPECT_LT(cost.get_future().get(), 0.5);
  });
}

TEST(MessageWaits, MayBeShortOrLong) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members);
    if (members.rank == 0) {
      const Work work = irecv(torch::zeros({1}), group, 1);
      EXPECT_ANY_THROW(work->wait(std::chrono::milliseconds(2)));
      barrier(group);
      EXPECT_TRUE(work->wait(std::chrono::milliseconds::max()));
    } else {
      barrier(group);
      send(torch::ones({1}), group, 0);
    }
  });
}

TEST(MessageWaits, NoteTheErrorOfAGroupThatOthersBroke) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members);
    const int peer = 1 - members.rank;
    if (members.rank == 0) {
      EXPECT_THROW(recv(torch::zeros({1}), group, peer), CollectiveMismatch);
      barrier(group);
    } else {
      const Work work = isend(torch::zeros({2}), group, peer);  // Too long, and gone at once.
      barrier(group);
      EXPECT_THROW(isend(torch::zeros({2}), group, peer)->wait(), CollectiveMismatch);
      EXPECT_EQ(group->getDefaultBackend()->getError(), c10d::ErrorType::COMM_ERROR);
    }
  });
}

}  // namespace
}  // namespace retinue
