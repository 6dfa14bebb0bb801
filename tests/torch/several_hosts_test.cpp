// Groups of ranks on several hosts, which the test makes itself.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "launch/strangers.h"
#include "retinue/base/error.h"
#include "retinue/store/tcp_store.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/divergence.h"
#include "retinue/torch/groups.h"
#include "retinue/torch/messages.h"
#include "retinue/torch/objects.h"
#include "retinue/torch/process_group.h"
#include "retinue/torch/run.h"
#include "support/captured_stderr.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "torch/contribution.h"
#include "torch/several_hosts.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;
using test::backend_of;
using test::contribution;
using test::kPort;
using test::meeting;
using test::run_strangers;
using test::says;
using test::SeveralHosts;
using test::TwoHosts;
using test::usage_error_of;

/// The sum over the group's ranks of what each gives, which is right on all.
void expect_sums(const ProcessGroup& group, int given, int expected) {
  at::Tensor sum = torch::full({3000}, given, torch::kInt);
  all_reduce(sum.t(), group);
  EXPECT_TRUE(torch::equal(sum, torch::full({3000}, expected, torch::kInt)));
}

TEST_F(SeveralHosts, UseGlooAllOfThemAndSaySo) {
  run_ranks(4, [](int rank) {
    const test::CapturedStderr captured;
    captured.begin();
    const ProcessGroup world = init_process_group(meeting(rank, 4));
    const std::string said = captured.text();
    EXPECT_EQ(says(said, "group \"world\": ranks 0 and 2 are on different hosts: all its ranks use gloo"), rank == 0)
        << said;
    EXPECT_EQ(backend_of(world), "gloo");
    expect_sums(world, rank + 1, 10);
    const ProcessGroup host = split_by_host(world);
    EXPECT_EQ(backend_of(host), "shm");
    EXPECT_EQ(host->getSize(), 2);
    EXPECT_EQ(host->getRank(), rank % 2);
    expect_sums(host, rank, rank < 2 ? 1 : 5);
    const ProcessGroup across = split_group(world, {.color = rank % 2});
    EXPECT_EQ(backend_of(across), "gloo");
    expect_sums(across, rank, rank % 2 == 0 ? 2 : 4);
    const ProcessGroup three = new_group({3, 1, 0}, world);
    EXPECT_EQ(three.defined(), rank != 2);
    if (three) expect_sums(three, rank, 4);
    const ProcessGroup one = new_group({2}, world);
    EXPECT_EQ(one.defined(), rank == 2);
    barrier(world, {.async_op = true})->wait();
  });
}

TEST_F(SeveralHosts, HaveObjectsMessagesGuardsAndChecks) {
  run_ranks(2, [](int rank) {
    const ProcessGroup world = init_process_group(meeting(rank, 2));
    EXPECT_EQ(all_gather_object(fmt::format("rank {}", rank), world), (std::vector<std::string>{"rank 0", "rank 1"}));
    std::vector<int> numbers;
    if (rank == 1) numbers = {4, 5, 6};
    broadcast_object(numbers, world, 1);
    EXPECT_EQ(numbers, (std::vector<int>{4, 5, 6}));
    EXPECT_EQ(zero_first(world, [&] { return rank; }), rank);
    const at::Tensor same = torch::ones({5});
    check_same("same", same, world);
    EXPECT_THROW(check_same("other", torch::full({5}, rank), world), DataDivergence);
    at::Tensor got = torch::zeros({4, 3});
    const Work sent = isend(contribution(rank, {3, 4}, at::kFloat).t(), world, 1 - rank, 7);
    EXPECT_EQ(recv(got, world, kAnySource, 7), 1 - rank);
    sent->wait();
    EXPECT_TRUE(torch::equal(got, contribution(1 - rank, {3, 4}, at::kFloat).t()));
    monitored_barrier(world);
  });
}

int sum_of_ranks(const ProcessGroup& group, int base) {
  at::Tensor sum = torch::full({1}, base + group->getRank(), torch::kInt);
  all_reduce(sum, group);
  return sum.item<int>();
}

TEST_F(SeveralHosts, AreTheShardsOfRun) {
  run_ranks(4, [](int rank) {
    const RunOptions options{.local_rank = rank % 2,
                             .num_proc = 2,
                             .init_method = meeting(0, 4).init_method,
                             .shard_id = rank / 2,
                             .num_shards = 2};
    EXPECT_EQ(run<sum_of_ranks>(options, 10), 46);
  });
}

TEST_F(SeveralHosts, MeetAtTheAgentOfTorchrun) {
  run_ranks(2, [](int rank) {
    c10d::TCPStoreOptions options;
    options.port = kPort;
    options.isServer = true;
    options.waitWorkers = false;
    c10::intrusive_ptr<c10d::TCPStore> agent;
    if (rank == 0) agent = c10::make_intrusive<c10d::TCPStore>(TwoHosts::address(0), options);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    setenv("MASTER_ADDR", TwoHosts::address(0).c_str(), 1);
    setenv("MASTER_PORT", std::to_string(kPort).c_str(), 1);
    setenv("RANK", std::to_string(rank).c_str(), 1);
    setenv("WORLD_SIZE", "2", 1);
    const ProcessGroup world = init_process_group();
    EXPECT_EQ(backend_of(world), "gloo");
    expect_sums(world, rank, 1);
    barrier(world);
  });
}

TEST_F(SeveralHosts, MayHaveManyGroupsOfOneName) {
  run_ranks(4, [](int rank) {
    const ProcessGroup worlds[] = {init_process_group(meeting(rank, 4)), init_process_group(meeting(rank, 4))};
    for (int i = 0; i < 3; ++i)
      for (const ProcessGroup& world : worlds) {
        const ProcessGroup part = split_group(world, {.color = rank % 2}, {.group_name = "part"});
        const ProcessGroup again = split_group(part, {.color = 0}, {.group_name = "part"});
        expect_sums(part, rank, rank % 2 == 0 ? 2 : 4);
        expect_sums(again, rank, rank % 2 == 0 ? 2 : 4);
        expect_sums(split_by_host(world), rank, rank < 2 ? 1 : 5);
        barrier(world);
      }
  });
}

TEST_F(SeveralHosts, MeetByAFileWhereAnInterfaceIsNamed) {
  const std::string path = std::filesystem::temp_directory_path() / fmt::format("retinue-hosts-{}", getpid());
  run_ranks(2, [&](int rank) {
    setenv("GLOO_SOCKET_IFNAME", TwoHosts::interface(rank).c_str(), 1);
    ProcessGroupOptions options = meeting(rank, 2);
    options.init_method = "file://" + path;
    expect_sums(init_process_group(options), rank, 1);
  });
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(SeveralHosts, RefuseAddressesThatNoOtherHostReaches) {
  const std::string path = std::filesystem::temp_directory_path() / fmt::format("retinue-hosts-{}", getpid());
  run_ranks(2, [&](int rank) {
    ProcessGroupOptions options = meeting(rank, 2);
    options.init_method = "file://" + path;  // Which tells no address, and there is no default route.
    const std::string text = usage_error_of([&] { init_process_group(options); });
    EXPECT_TRUE(says(text, "rank 0 has the address 127.0.0.1")) << text;
    EXPECT_TRUE(says(text, "GLOO_SOCKET_IFNAME")) << text;
  });
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(SeveralHosts, AreToldOfAnInterfaceThatIsNotThere) {
  run_ranks(2, [&](int rank) {
    setenv("GLOO_SOCKET_IFNAME", rank == 0 ? TwoHosts::interface(0).c_str() : "nosuch0", 1);
    const std::string text = usage_error_of([&] { init_process_group(meeting(rank, 2)); });
    EXPECT_TRUE(says(text, "rank 1 has no address for the others: GLOO_SOCKET_IFNAME is \"nosuch0\"")) << text;
    setenv("GLOO_SOCKET_IFNAME", "lo", 1);
    const std::string other = usage_error_of([&] { init_process_group(meeting(rank, 2)); });
    EXPECT_TRUE(says(other, "rank 0 has the address 127.0.0.1")) << other;
  });
}

TEST_F(SeveralHosts, NameTheRankThatDied) {
  run_ranks(
      2,
      [](int rank) {
        const ProcessGroup world = init_process_group(meeting(rank, 2));
        barrier(world);
        if (rank == 1) raise(SIGKILL);
        at::Tensor tensor = torch::ones({5});
        for (int i = 0; i < 2; ++i) try {
            all_reduce(tensor, world);
            ADD_FAILURE() << "rank 1 is gone";
          } catch (const PeerLost& error) {
            EXPECT_EQ(error.ranks(), std::vector<int>{1}) << error.what();
            EXPECT_TRUE(says(error.what(), "rank 0 waits in its 2nd call, all_reduce(fp32, 5, sum) at "))
                << error.what();
            EXPECT_TRUE(says(error.what(), "several_hosts_test.cpp:")) << error.what();
          }
      },
      1);
}

TEST_F(SeveralHosts, NoticeDifferentCallsAtOnce) {
  run_ranks(2, [](int rank) {
    const ProcessGroup world = init_process_group(meeting(rank, 2));
    at::Tensor tensor = torch::ones({5});
    try {
      rank == 0 ? all_reduce(tensor, world) : broadcast(tensor, world);
      ADD_FAILURE() << "the calls went together";
    } catch (const CollectiveMismatch& error) {
      EXPECT_TRUE(says(error.what(), "rank 0: all_reduce(fp32, 5, sum) at ")) << error.what();
      EXPECT_TRUE(says(error.what(), "rank 1: broadcast(fp32, 20 bytes, root 0) at ")) << error.what();
    }
  });
}

TEST_F(SeveralHosts, SeeTheWholeGroupEndWhenARankDies) {
  run_ranks(
      4,
      [](int rank) {
        const ProcessGroup world = init_process_group(meeting(rank, 4));
        barrier(world);
        if (rank == 3) raise(SIGKILL);
        // Of a broadcast's tree each waits for one other only.
        at::Tensor tensor = torch::ones({100000});
        EXPECT_THROW(
            {
              for (;;) broadcast(tensor, world);
            },
            PeerLost);
        EXPECT_EQ(world->getDefaultBackend()->getError(), c10d::ErrorType::REMOTE_ERROR);
      },
      3);
}

TEST_F(SeveralHosts, EndTheirWaitsAtTheTimeout) {
  run_ranks(2, [](int rank) {
    const ProcessGroup control = init_process_group(meeting(rank, 2));
    ProcessGroupOptions options = meeting(rank, 2);
    options.group_name = "hasty";
    const ProcessGroup hasty = init_process_group(options);
    hasty->setTimeout(300ms);
    if (rank == 0) {
      EXPECT_THROW(barrier(hasty), TimeoutError);
    }
    barrier(control);
  });
}

bool may_make_containers() {
  const pid_t child = fork();
  if (child == 0)
    _exit(unshare(CLONE_NEWPID | CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0
              ? 0
              : 1);
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

/// Ranks of one host that don't see each other's processes.
TEST(Containers, UseGlooOverTheirCommonNetwork) {
  setenv("RETINUE_TOKEN", "of the test", 1);
  const int port = TcpStore({.port = 0, .is_server = true}).port();
  const auto train = [&](int rank) {
    const ProcessGroup world = init_process_group(
        {.init_method = fmt::format("tcp://127.0.0.1:{}", port), .timeout = 60s, .world_size = 3, .rank = rank});
    EXPECT_EQ(backend_of(world), "gloo");
    expect_sums(world, rank, 3);
    const ProcessGroup host = split_by_host(world);
    EXPECT_EQ(backend_of(host), "shm");
    EXPECT_EQ(host->getSize(), rank < 2 ? 2 : 1);
    barrier(world);
  };
  if (!may_make_containers()) GTEST_SKIP() << "no PID namespaces can be made here";
  run_strangers(3, [&](int rank) {
    if (rank != 2) return train(rank);
    ASSERT_EQ(unshare(CLONE_NEWPID | CLONE_NEWNS), 0);
    ASSERT_EQ(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    const pid_t child = fork();
    if (child == 0) {
      EXPECT_EQ(mount("proc", "/proc", "proc", 0, nullptr), 0);
      train(rank);
      _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  });
}

}  // namespace
}  // namespace retinue
