// Rank 0 serves the meeting, and may end as soon as it is through with it.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include "launch/world_scene.h"
#include "retinue/base/error.h"
#include "retinue/launch/join_group.h"
#include "retinue/launch/join_world.h"
#include "retinue/store/tcp_store.h"
#include "support/all_rights.h"

namespace retinue::test {
namespace {

constexpr int kRounds = 40;  // Of the old code one in seven failed.

enum Code { kJoined = 10, kNotOneHost = 11, kOther = 12 };

int how_it_went(const WorldOptions& options) {
  try {
    join_world(options);
    return kJoined;
  } catch (const NotOneHost&) {
    return kNotOneHost;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return kOther;
  }
}

/// A child, in which `prepare` runs first. Rank 0 ends by exit(), as a program does.
pid_t start(int rank, const std::function<WorldOptions(int)>& options_of, const std::function<void()>& prepare) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  set_environment({});
  prepare();
  const int code = how_it_went(options_of(rank));
  std::fflush(nullptr);
  if (rank == 0) std::exit(code);
  _exit(code);
}

int code_of(pid_t pid) {
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WEXITSTATUS(status);
}

/// A PID namespace with a /proc of its own, as in a container: from there nobody can map another's memory.
void go_elsewhere() {
  const auto give_up = [](const char* what) {
    std::perror(what);
    _exit(kOther);
  };
  if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) give_up("unshare");
  const pid_t inside = fork();
  if (inside == 0) {
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) give_up("making the mount of / private");
    if (mount("proc", "/proc", "proc", 0, nullptr) != 0) give_up("mounting /proc");
    return;
  }
  int status = 0;
  waitpid(inside, &status, 0);
  _exit(WEXITSTATUS(status));
}

void stay_here() {}

void expect_both(int expected, const std::function<void()>& where_rank_1_is) {
  for (int round = 0; round < kRounds; ++round) {
    const std::string method = fmt::format("tcp://127.0.0.1:{}", free_port());
    const auto options_of = [&](int rank) {
      return WorldOptions{.init_method = method, .world_size = 2, .rank = rank};
    };
    const pid_t rank_0 = start(0, options_of, stay_here);
    const pid_t rank_1 = start(1, options_of, where_rank_1_is);
    const int code_1 = code_of(rank_1);
    if (code_1 == kOther) kill(rank_0, SIGKILL);  // It would wait for the other one.
    ASSERT_EQ(code_of(rank_0), expected) << "round " << round;
    ASSERT_EQ(code_1, expected) << "round " << round;
  }
}

TEST(JoinWorldEnd, OfRank0IsNoneOfTheMeeting) {
  expect_both(kJoined, stay_here);
}

TEST(JoinWorldEnd, ComesAfterAllKnowThatTheyAreNotOnOneHost) {
  if (!has_all_rights()) GTEST_SKIP() << "only root may make a PID namespace";
  expect_both(kNotOneHost, go_elsewhere);
}

TEST(JoinWorldEnd, OfAStoreOfTheProgramsOwnIsNoneOfTheMeetingEither) {
  for (int round = 0; round < kRounds; ++round) {
    const int port = free_port();
    const auto options_of = [port](int rank) {
      auto store = std::make_shared<TcpStore>(TcpStoreOptions{.port = port, .is_server = rank == 0});
      return WorldOptions{.store = std::move(store), .world_size = 2, .rank = rank};
    };
    const pid_t rank_0 = start(0, options_of, stay_here);
    const pid_t rank_1 = start(1, options_of, stay_here);
    EXPECT_EQ(code_of(rank_0), kJoined) << "round " << round;
    EXPECT_EQ(code_of(rank_1), kJoined) << "round " << round;
  }
}

}  // namespace
}  // namespace retinue::test
