#include "retinue/launch/join_group.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "launch/strangers.h"
#include "launch/world/group_records.h"
#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "retinue/collective/objects.h"
#include "retinue/ipc/shared_block.h"
#include "retinue/launch/guest.h"
#include "retinue/launch/runtime.h"
#include "support/usage_error.h"

using retinue::Communicator;
using retinue::GroupExchange;
using retinue::JobGroup;
using retinue::join_group;
using retinue::test::run_strangers;
using retinue::test::Table;
using retinue::test::usage_error_of;

namespace {

/// Whether the group's ranks are who they should be: each gives its rank, as a digit.
void expect_works(Communicator& group) {
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  const int own = group.rank();
  group.all_gather(std::span(&own, 1), std::span(ranks));
  for (int i = 0; i < group.size(); ++i) EXPECT_EQ(ranks[static_cast<std::size_t>(i)], i);
  int sum = own + 1;
  group.all_reduce(std::span(&sum, 1));
  EXPECT_EQ(sum, group.size() * (group.size() + 1) / 2);
}

std::size_t descriptors() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(open), end(open)));
}

class JoinGroupSizes : public testing::TestWithParam<int> {};

TEST_P(JoinGroupSizes, JoinsProcessesThatNoJobStarted) {
  const Table table(GetParam());
  run_strangers(GetParam(), [&](int rank) {
    Communicator group(join_group(table.exchange(rank)));
    EXPECT_EQ(group.rank(), rank);
    EXPECT_EQ(group.size(), GetParam());
    EXPECT_TRUE(group.group().name.starts_with("strangers ")) << group.group().name;
    expect_works(group);
    // Memory that all map: read where it lies.
    const auto block = retinue::SharedBlock::allocate(group.group().memory, std::size_t{1} << 20);
    const std::span numbers(reinterpret_cast<double*>(block.data()), block.bytes() / sizeof(double));
    std::fill(numbers.begin(), numbers.end(), rank + 1.0);
    group.all_reduce(numbers);
    EXPECT_EQ(numbers.back(), GetParam() * (GetParam() + 1) / 2.0);
    EXPECT_THROW(retinue::JobMemory::current(), retinue::UsageError);
  });
}
INSTANTIATE_TEST_SUITE_P(Ranks, JoinGroupSizes, testing::Values(1, 2, 4));

/// TSan has a thread of its own: a Runtime then executes its guardian anew, and that would be all of these tests.
#if defined(__SANITIZE_THREAD__)
#define SKIP_WHERE_RUNTIME_EXECUTES_THE_TESTS() GTEST_SKIP() << "the sanitizer's thread has the guardian executed anew"
#else
#define SKIP_WHERE_RUNTIME_EXECUTES_THE_TESTS() static_cast<void>(0)
#endif

TEST(JoinGroup, MakesMemoryOnlyWhereThereIsNoneInCommon) {
  const Table all(4);
  const Table rows[] = {Table(2), Table(2)};
  const Table columns[] = {Table(2), Table(2)};
  run_strangers(4, [&](int rank) {
    const int row = rank / 2;
    const int column = rank % 2;
    Communicator in_row(join_group(rows[row].exchange(column)));
    Communicator in_column(join_group(columns[column].exchange(row)));
    EXPECT_NE(in_row.group().memory, in_column.group().memory);
    Communicator whole(join_group(all.exchange(rank)));
    // The newest goes first: that of all.
    Communicator again(join_group(rows[row].exchange(1 - column)));
    EXPECT_EQ(again.rank(), 1 - column);
    EXPECT_EQ(again.group().memory, whole.group().memory);
    for (Communicator* group : {&whole, &again, &in_row, &in_column, &whole}) expect_works(*group);
    const std::size_t before = descriptors();
    for (int i = 0; i < 20; ++i) {
      Communicator one_more(join_group(all.exchange(3 - rank)));
      expect_works(one_more);
      EXPECT_NE(one_more.group().name, whole.group().name);
    }
    EXPECT_EQ(descriptors(), before);
  });
}

TEST(JoinGroup, UsesTheJobThatAllAreIn) {
  SKIP_WHERE_RUNTIME_EXECUTES_THE_TESTS();
  const Table table(3);
  run_strangers(3, [&](int rank) {
    char program[] = "strangers";
    char* argv[] = {program, nullptr};
    std::unique_ptr<retinue::Runtime> runtime;
    char id[64] = {};
    if (rank == 0) {
      runtime = std::make_unique<retinue::Runtime>(1, argv);
      strncpy(id, runtime->job_id().c_str(), sizeof id - 1);
    }
    char ids[3][sizeof id];
    table.all_gather(rank, id, ids, sizeof id);
    if (rank != 0) retinue::join_job(ids[0]);
    Communicator group(join_group(table.exchange(rank)));
    EXPECT_EQ(group.group().memory, retinue::JobMemory::current());
    expect_works(group);
    if (rank == 0) return;  // The job ends, with the Runtime, under the others' hands.
    try {
      group.barrier();
      ADD_FAILURE() << "rank 0 has gone";
    } catch (const retinue::PeerLost& error) {
      EXPECT_EQ(error.ranks(), std::vector{0});
    }
  });
}

TEST(JoinGroup, ConnectsDifferentJobs) {
  SKIP_WHERE_RUNTIME_EXECUTES_THE_TESTS();
  const Table table(2);
  run_strangers(2, [&](int rank) {
    char program[] = "strangers";
    char* argv[] = {program, nullptr};
    auto runtime = std::make_unique<retinue::Runtime>(1, argv);
    Communicator group(join_group(table.exchange(rank)));
    EXPECT_NE(group.group().memory, runtime->memory());
    EXPECT_EQ(retinue::JobMemory::current(), runtime->memory());
    expect_works(group);
    // A block of one job is nothing in another.
    EXPECT_EQ(retinue::all_gather_object(group, rank), (std::vector{0, 1}));
    auto block = rank == 0 ? retinue::SharedBlock::allocate(100) : retinue::SharedBlock();
    const std::string error = usage_error_of([&] { retinue::broadcast_object(group, block, 0); });
    EXPECT_NE(error.find(rank == 0 ? "not in one job" : "rank 0 could not archive"), std::string::npos) << error;
    if (rank == 0) {
      EXPECT_NE(usage_error_of([&] { retinue::send_object(group, block, 1); }).find("not in one job"),
                std::string::npos);
    }
    block = {};
    if (rank == 0) runtime.reset();
    expect_works(group);
  });
}

TEST(JoinGroup, TellsOfAKilledRank) {
  const Table table(3);
  run_strangers(
      3,
      [&](int rank) {
        Communicator group(join_group(table.exchange(rank)));
        expect_works(group);
        if (rank == 1) kill(getpid(), SIGKILL);
        try {
          group.barrier();
          ADD_FAILURE() << "rank 1 is dead";
        } catch (const retinue::PeerLost& error) {
          EXPECT_EQ(error.ranks(), std::vector{1});
        }
      },
      1);
}

TEST(JoinGroup, IsNoMembershipOfForks) {
  const Table table(2);
  const Table forks(2);
  run_strangers(2, [&](int rank) {
    Communicator group(join_group(table.exchange(rank)));
    const pid_t pid = fork();
    if (pid == 0) {
      Communicator own(join_group(forks.exchange(rank)));
      EXPECT_NE(own.group().memory, group.group().memory);
      expect_works(own);
      _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    expect_works(group);
    int status = -1;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  });
}

/// What all three ranks throw where `spoil` changes what rank 1 tells; then they try again.
std::string error_of_all(const std::function<void(GroupExchange&)>& spoil) {
  const Table table(3);
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  run_strangers(3, [&](int rank) {
    const std::size_t before = descriptors();
    GroupExchange exchange = table.exchange(rank);
    if (rank == 1) spoil(exchange);
    const std::string own = usage_error_of([&] { join_group(exchange); });
    EXPECT_EQ(descriptors(), before);
    char text[1024] = {};
    char texts[3][sizeof text];
    strncpy(text, own.c_str(), sizeof text - 1);
    table.all_gather(rank, text, texts, sizeof text);
    for (const char* other : texts) EXPECT_EQ(own, other);
    if (rank == 0) {
      EXPECT_EQ(write(ends[1], own.data(), own.size()), static_cast<ssize_t>(own.size()));
    }
    Communicator group(join_group(table.exchange(rank)));
    expect_works(group);
  });
  close(ends[1]);
  char text[1024] = {};
  EXPECT_GT(read(ends[0], text, sizeof text - 1), 0);
  close(ends[0]);
  return text;
}

/// Changes rank 1's record of type T, which all get.
template <class T>
std::function<void(GroupExchange&)> changed(const std::function<void(T&)>& change) {
  return [change](GroupExchange& exchange) {
    exchange.all_gather = [change, honest = exchange.all_gather](const void* own, void* all, std::size_t bytes) {
      std::vector<std::byte> copy(bytes);
      std::memcpy(copy.data(), own, bytes);
      if (bytes == sizeof(T)) change(*reinterpret_cast<T*>(copy.data()));
      honest(copy.data(), all, bytes);
    };
  };
}

TEST(JoinGroupErrors, AreTheSameOnAllRanks) {
  EXPECT_NE(error_of_all(changed<retinue::Greeting>([](auto& greeting) {
              ++greeting.layout_version;
            })).find("different versions of Retinue"),
            std::string::npos);
  EXPECT_NE(error_of_all(changed<retinue::Introduction>([](auto& one) { strcpy(one.boot_id, "elsewhere"); }))
                .find("ranks 0 and 1 are on different hosts, but a group like this needs all ranks on one host: make a "
                      "group for each host"),
            std::string::npos);
}

TEST(JoinGroupErrors, OfOneRankComeToAll) {
  // As where rank 0 is in another container: its pid is nobody's there.
  const std::string other = error_of_all([](GroupExchange& exchange) {
    exchange.all_gather = [honest = exchange.all_gather](const void* own, void* all, std::size_t bytes) {
      honest(own, all, bytes);
      if (bytes == sizeof(retinue::MemoryOffer)) static_cast<retinue::MemoryOffer*>(all)->pid = getpid();
    };
  });
  EXPECT_NE(other.find("\": rank 1: the memory that rank 0 (pid "), std::string::npos) << other;
  EXPECT_NE(other.find("in the same PID namespace"), std::string::npos) << other;
}

TEST(JoinGroupErrors, OfThreadsAndMemoryComeToAll) {
  const Table table(2);
  run_strangers(2, [&](int rank) {
    std::string error;
    const auto join = [&] { error = usage_error_of([&] { join_group(table.exchange(rank)); }); };
    if (rank == 1)
      std::thread(join).join();
    else
      join();
    EXPECT_NE(error.find("rank 1: only the main thread"), std::string::npos) << error;
    if (rank == 0) setenv("RETINUE_JOB_MEMORY", "much", 1);
    join();
    EXPECT_NE(error.find("rank 0: RETINUE_JOB_MEMORY is 'much'"), std::string::npos) << error;
    unsetenv("RETINUE_JOB_MEMORY");
    join();
    EXPECT_EQ(error, "no UsageError");
    // Now that they have memory in common, any thread may.
    std::thread([&] {
      Communicator group(join_group(table.exchange(rank)));
      expect_works(group);
    }).join();
  });
}

TEST(JoinGroupErrors, OfAnExchangeThatMakesNoSense) {
  EXPECT_NE(usage_error_of([] { join_group({}); }).find("no all_gather"), std::string::npos);
  EXPECT_NE(usage_error_of([] { join_group({.rank = 2, .size = 2}); }).find("rank 2 of 2"), std::string::npos);
  EXPECT_NE(usage_error_of([] { join_group({.rank = 0, .size = 0}); }).find("rank 0 of 0"), std::string::npos);
}

}  // namespace
