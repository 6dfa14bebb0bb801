// Ranks of a world that don't all come, or not as they should.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "launch/strangers.h"
#include "launch/world_scene.h"
#include "retinue/base/error.h"
#include "retinue/launch/join_world.h"
#include "retinue/store/tcp_store.h"
#include "support/captured_stderr.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "support/wait_until.h"

namespace retinue::test {
namespace {

using namespace std::chrono_literals;

TEST(WorldMeeting, NamesTheRanksThatDoNotCome) {
  const int port = free_port();
  const std::string method = fmt::format("tcp://127.0.0.1:{}", port);
  const Table table(2);
  run_strangers(2, [&](int i) {
    set_environment({});
    const int rank = i * 2;
    char unused = 0;
    char both[2];
    try {
      join_world({.init_method = method, .world_size = 4, .rank = rank, .timeout = 4s});
      ADD_FAILURE() << "ranks 1 and 3 are nowhere";
    } catch (const TimeoutError& error) {
      EXPECT_TRUE(
          says(error.what(), fmt::format("ranks 1 and 3 of 4 did not join in time at TcpStore at 127.0.0.1:{}", port)))
          << error.what();
    }
    table.all_gather(i, &unused, both, 1);  // Rank 0 serves to its end.
  });
}

/// At once: their timeout is half an hour.
TEST(WorldMeeting, RefusesRanksThatCountDifferently) {
  for (int odd = 0; odd < 3; ++odd) {
    const std::string method = fmt::format("tcp://127.0.0.1:{}", free_port());
    const Table table(3);
    run_strangers(3, [&](int rank) {
      set_environment({});
      char unused = 0;
      char all[3];
      try {
        join_world({.init_method = method, .world_size = rank == odd ? 4 : 3, .rank = rank});
        ADD_FAILURE() << "they met";
      } catch (const UsageError& error) {
        for (const std::string& words : {fmt::format("4 ranks, as rank {}", odd), std::string("3 ranks, as rank "),
                                         std::string("give all processes the same world size (WORLD_SIZE)")})
          EXPECT_TRUE(says(error.what(), words)) << error.what();
      }
      table.all_gather(rank, &unused, all, 1);  // Rank 0 serves to its end.
    });
  }
}

/// At once, as above; the file is free for the next try.
TEST(WorldMeeting, RefusesRanksThatCountDifferentlyInAFile) {
  const std::string path = free_path("differently");
  const Table table(2);
  run_strangers(2, [&](int rank) {
    set_environment({});
    char unused = 0;
    char all[2];
    std::error_code none;
    EXPECT_TRUE(rank == 0 ||
                wait_until([&] { return std::filesystem::exists(path) && !std::filesystem::is_empty(path, none); }));
    const std::string text = usage_error_of(
        [&] { join_world({.init_method = "file://" + path, .world_size = rank == 0 ? 3 : 2, .rank = rank}); });
    EXPECT_TRUE(says(text, path)) << text;
    EXPECT_TRUE(says(text, rank == 0 ? "another process gave a world size of 2, but this job has 3 members"
                                     : "belongs to a job with 3 members, but this job has 2"))
        << text;
    table.all_gather(rank, &unused, all, 1);
  });
  EXPECT_FALSE(std::filesystem::exists(path));
}

/// At once, as above.
TEST(WorldMeeting, RefusesTwoProcessesOfOneRank) {
  const std::string method = fmt::format("tcp://127.0.0.1:{}", free_port());
  const Table table(3);
  run_strangers(3, [&](int i) {
    set_environment({});
    const int rank = i == 2 ? 1 : i;
    char unused = 0;
    char all[3];
    const std::string text =
        usage_error_of([&] { join_world({.init_method = method, .world_size = 3, .rank = rank}); });
    EXPECT_TRUE(says(text, " has joined as rank 1, and so has process ")) << text;
    EXPECT_TRUE(says(text, ": give each process its own rank (RANK)")) << text;
    table.all_gather(i, &unused, all, 1);  // Rank 0 serves to its end.
  });
}

/// One that gave up and lives on is none of them.
TEST(WorldMeeting, TakesAnotherProcessForOneThatGaveUp) {
  const int port = free_port();
  const TcpStore server({.port = port, .is_server = true});
  const Table table(3);
  run_strangers(3, [&](int i) {
    set_environment({});
    char unused = 0;
    char all[3];
    const auto join = [&](int rank, Store::Time timeout) {
      return join_world({.store = std::make_shared<TcpStore>(TcpStoreOptions{.port = port}),
                         .world_size = 2,
                         .rank = rank,
                         .timeout = timeout});
    };
    if (i == 2) {
      EXPECT_THROW(join(1, 1s), TimeoutError);
    }
    table.all_gather(i, &unused, all, 1);
    if (i == 0) {
      EXPECT_THROW(join(0, 1s), TimeoutError);  // The first time that rank 0 comes.
    }
    table.all_gather(i, &unused, all, 1);
    if (i < 2) expect_works(join(i, 60s), i, 2);
    table.all_gather(i, &unused, all, 1);
  });
}

TEST(WorldMeeting, ReportsRanksThatHaveNotCome) {
  const CapturedStderr captured;
  const std::string method = fmt::format("tcp://127.0.0.1:{}", free_port());
  const Table table(4);
  run_strangers(4, [&](int rank) {
    captured.begin();
    set_environment({});
    char unused = 0;
    char all[4];
    const auto is_told = [&](const std::string& words) {
      EXPECT_TRUE(wait_until([&] { return says(captured.text(), words); })) << captured.text();
    };
    // Rank 0 comes when it is missed, and after it rank 3.
    if (rank == 0)
      is_told(
          " has waited 0.3 s in train at a.cpp:7 for rank 0's store\n  could not connect to the store at 127.0.0.1:");
    if (rank == 3) is_told("  rank 3 has not joined yet; this wait ends in ");
    const JobGroup group = join_world(
        {.init_method = method, .world_size = 4, .rank = rank, .late_after = 300ms, .call = "train at a.cpp:7"});
    expect_works(group, rank, 4);
    table.all_gather(rank, &unused, all, 1);
  });
}

/// Its waits are those of a rank that came, and that others may look at.
void die_in_the_meeting(WorldOptions options, int port) {
  const pid_t pid = fork();
  TcpStore store({.port = port});
  if (pid == 0) {
    options.store = std::make_shared<TcpStore>(TcpStoreOptions{.port = port});
    join_world(options);
    _exit(1);
  }
  store.wait({"retinue/world/1/size", fmt::format("retinue/world/process of {}", options.rank)});
  kill(pid, SIGKILL);
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
}

/// At once, as above; who comes later reads it, too.
TEST(WorldMeeting, EndsForAllWhereARankDies) {
  for (const int dead : {0, 1}) {
    const int port = free_port();
    const TcpStore server({.port = port, .is_server = true});
    run_strangers(3, [&](int rank) {
      set_environment({});
      const auto store = std::make_shared<TcpStore>(TcpStoreOptions{.port = port});
      const WorldOptions options{.store = store, .world_size = 3, .rank = rank};
      if (rank == dead) return die_in_the_meeting(options, port);
      if (rank == 2) {
        // It comes when the other one has said what it found.
        store->wait({"retinue/world/1/0/all"});
      }
      try {
        join_world(options);
        ADD_FAILURE() << "they met";
      } catch (const PeerLost& error) {
        EXPECT_EQ(error.ranks(), std::vector<int>{dead});
        EXPECT_TRUE(says(error.what(), ") has joined, and then died")) << error.what();
      }
    });
  }
}

/// Where all have come, the next try is another one, and nobody must remove the file of the last.
TEST(WorldMeeting, CanBeTriedAgainAtAFile) {
  const std::string path = free_path("again");
  const Table table(2);
  run_strangers(2, [&](int rank) {
    set_environment({});
    char unused = 0;
    char all[2];
    const auto join = [&](Store::Time timeout) {
      return join_world({.init_method = "file://" + path, .world_size = 2, .rank = rank, .timeout = timeout});
    };
    if (rank == 0) {
      EXPECT_THROW(join(100ms), TimeoutError);
      EXPECT_THROW(join(100ms), TimeoutError);
      EXPECT_FALSE(std::filesystem::exists(path));
    }
    table.all_gather(rank, &unused, all, 1);
    expect_works(join(60s), rank, 2);
  });
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(WorldMeeting, SaysThatItsStoreDoesNotAnswer) {
  const int port = free_port();
  run_strangers(1, [&](int /*rank*/) {
    set_environment({});
    const pid_t pid = fork();
    if (pid == 0) {
      const TcpStore store({.port = port, .is_server = true});
      pause();
    }
    const auto store = std::make_shared<TcpStore>(TcpStoreOptions{.port = port});
    // It stops when the rank waits.
    std::thread stopper([&] {
      TcpStore looks({.port = port});
      looks.wait({"retinue/world/1/0/1"});
      kill(pid, SIGSTOP);
    });
    try {
      join_world({.store = store, .world_size = 2, .rank = 1, .timeout = 2s, .late_after = 500ms});
      ADD_FAILURE() << "they met";
    } catch (const TimeoutError& error) {
      EXPECT_TRUE(says(error.what(), "which does not answer: is the process that serves it")) << error.what();
    }
    stopper.join();
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  });
}

}  // namespace
}  // namespace retinue::test
