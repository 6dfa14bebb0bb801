// Showing output where the machine gives little: fewer descriptors than files, and no inotify.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>

#include "launch/log_files.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"

using retinue::RankContext;
using retinue::Std;
using retinue::test::CapturedStream;
using retinue::test::Folder;
using retinue::test::wait_until;

namespace {

constexpr int kRanks = 40;
constexpr rlim_t kDescriptors = 32;

std::string obstacle;

/// inotify is limited by user namespace: only this test is.
void forbid_inotify() {
  const std::string own = std::to_string(geteuid()) + " " + std::to_string(geteuid()) + " 1";
  if (unshare(CLONE_NEWUSER) != 0) {
    obstacle = std::string("a user namespace of the test's own is not permitted here: ") + strerrordesc_np(errno);
    return;
  }
  std::ofstream("/proc/self/uid_map") << own;
  std::ofstream limit("/proc/sys/user/max_inotify_instances");
  if (!(limit << "0" << std::flush)) obstacle = "max_inotify_instances cannot be set here";
}

void print_when_asked(RankContext& context, const std::string& go) {
  if (!wait_until([&] { return access(go.c_str(), F_OK) == 0; })) std::abort();
  std::printf("line of %d\n", context.rank());
  std::fprintf(stderr, "error of %d\n", context.rank());
}

TEST(ScarceTee, ShowsAllAndSaysThatItLooksFromTimeToTime) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a check of UBSan's makes a pipe, and takes a process out of descriptors for one with an error";
#endif
  if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  const Folder logs;
  const Folder go;
  std::string shown;
  std::string said;
  {
    const CapturedStream out(STDOUT_FILENO);
    const CapturedStream err(STDERR_FILENO);
    std::map<int, std::tuple<std::string>> arguments;
    for (int rank = 0; rank < kRanks; ++rank) arguments[rank] = {go.path() + "/go"};
    auto ranks = retinue::start_processes<print_when_asked>({.log_dir = logs.path(), .tee = Std::kAll}, arguments);
    EXPECT_TRUE(wait_until([&] { return err.text().find("cannot be watched") != std::string::npos; }));
    std::ofstream(go.path() + "/go") << "x";
    ranks.join();
    shown = out.text();
    said = err.text();
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string number = std::to_string(rank);
    EXPECT_NE(shown.find("[rank" + number + "]:line of " + number + "\n"), std::string::npos);
    EXPECT_NE(said.find("[rank" + number + "]:error of " + number + "\n"), std::string::npos);
  }
  EXPECT_EQ(said.find("cannot be watched"), said.rfind("cannot be watched")) << said;
}

}  // namespace

int main(int argc, char** argv) {
  forbid_inotify();
  const rlimit limit{kDescriptors, kDescriptors};
  setrlimit(RLIMIT_NOFILE, &limit);
  retinue::Runtime runtime(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
