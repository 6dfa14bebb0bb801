// A program that names the command its ranks come from: the guardian is executed by it, and its ranks are forks of
// that.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "retinue/base/error.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"
#include "support/started_program.h"

namespace {

using retinue::StartMethod;
using retinue::test::StartedProgram;

int loaded = 0;  // What a process that serves loads before its Runtime; the program itself does not.

struct Seen {
  int loaded;
  int parent;
};

Seen look(int) {
  return {loaded, getppid()};
}

std::map<int, Seen> spawned(std::optional<StartMethod> method) {
  return retinue::spawn<look>({.nprocs = 2, .start_method = method}).wait().values<Seen>();
}

TEST(ExecutedGuardian, ForksRanksThatHaveWhatItLoaded) {
  std::map<int, Seen> seen = spawned(std::nullopt);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].loaded, 1);
  EXPECT_EQ(seen[1].loaded, 1);
  EXPECT_EQ(seen[0].parent, seen[1].parent);
  EXPECT_NE(seen[0].parent, getpid());
}

TEST(ExecutedGuardian, ExecutesRanksOfKSpawnByTheCommandToo) {
  EXPECT_EQ(spawned(StartMethod::kSpawn)[1].loaded, 1);
  EXPECT_EQ(spawned(StartMethod::kForkserver)[1].loaded, 1);
}

int start_nested(int) {
  return spawned(std::nullopt)[1].loaded;
}

TEST(ExecutedGuardian, ServesItsRanksToo) {
  EXPECT_EQ(retinue::spawn<start_nested>({.nprocs = 1}).wait().value<int>(0), 1);
}

TEST(ExecutedGuardian, IsNamedIfItEndsWithoutARuntime) {
  StartedProgram program("/proc/self/exe", {"--wrong"});
  EXPECT_NE(program.read_all().find("the guardian, executed as 'me --end' by RuntimeOptions::command, ended before"),
            std::string::npos);
  int status = -1;
  EXPECT_EQ(waitpid(program.pid(), &status, 0), program.pid());
  EXPECT_EQ(status, 0);
}

/// Prints what spawn says of a guardian that ends without a Runtime.
int start_wrongly(int argc, char** argv) {
  const retinue::Runtime runtime(argc, argv, {.command = {"me", "--end"}});
  try {
    spawned(std::nullopt);
  } catch (const retinue::SystemError& error) {
    std::cout << error.what() << std::endl;
  }
  return 0;
}

int run_tests(int argc, char** argv) {
  // Another thread, so that this process can't be forked: what the command executes can.
  std::atomic<bool> is_done = false;
  std::thread other([&] { is_done.wait(false); });
  int result = 0;
  {
    const retinue::Runtime runtime(argc, argv, {.command = {argv[0], "--serve"}});
    testing::InitGoogleTest(&argc, argv);
    result = RUN_ALL_TESTS();
  }
  is_done = true;
  is_done.notify_all();
  other.join();
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "--end") return 0;
  if (mode == "--wrong") return start_wrongly(argc, argv);
  if (mode != "--serve") return run_tests(argc, argv);
  loaded = 1;
  const retinue::Runtime runtime(argc, argv);  // Does not return.
  return 1;
}
