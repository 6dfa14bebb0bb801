// A disk under log_dir that is full: a tmpfs of 64 KiB, in a mount namespace of this test's own.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>

#include "launch/log_files.h"
#include "retinue/collective/communicator.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"

using retinue::Program;
using retinue::RankContext;
using retinue::Std;
using retinue::test::CapturedStream;
using retinue::test::contents_of;
using retinue::test::Folder;

namespace {

std::string mount_error;

/// Before Runtime, so that the guardian and its ranks see the mount too.
std::string mount_small_disk(const Folder& folder) {
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("none", folder.path().c_str(), "tmpfs", 0, "size=64k,nr_inodes=300") != 0)
    mount_error = std::string("a file system of the test's own is not permitted here: ") + strerrordesc_np(errno);
  return folder.path();
}

std::string disk;

class FullDisk : public testing::Test {
 protected:
  void SetUp() override {
    if (!mount_error.empty()) GTEST_SKIP() << mount_error;
    std::filesystem::create_directory(logs_);
  }
  void TearDown() override { std::filesystem::remove_all(logs_); }

  std::string logs_ = disk + "/logs";
};

/// Nobody fills the disk before all have a line on it.
void write_too_much(RankContext& context) {
  std::printf("line 0\n");
  std::fflush(stdout);
  retinue::Communicator(context.world()).barrier();
  for (int i = 1; i < 20'000; ++i) std::printf("line %d\n", i);
}

TEST_F(FullDisk, RanksGoOnAndItIsSaid) {
  std::string shown;
  std::string said;
  {
    const CapturedStream out(STDOUT_FILENO);
    const CapturedStream err(STDERR_FILENO);
    retinue::start_processes<write_too_much>({.name = "talker", .log_dir = logs_, .tee = Std::kOut}, {{0, {}}, {1, {}}})
        .join();
    shown = out.text();
    said = err.text();
  }
  EXPECT_EQ(said,
            "retinue: no space is left on the disk under " + logs_ + ": logs of talker may lack their last lines\n");
  EXPECT_NE(shown.find("[talker0]:line 0\n"), std::string::npos);
  EXPECT_NE(shown.find("[talker1]:line 0\n"), std::string::npos);
}

TEST_F(FullDisk, AProgramThatMindsFailsWithItsOwnCode) {
  const CapturedStream err(STDERR_FILENO);
  auto ranks = retinue::start_processes({.log_dir = logs_, .redirects = Std::kOut},
                                        {Program{"dd", {"if=/dev/zero", "bs=1M", "count=1"}, {}}});
  EXPECT_THROW(ranks.join(), retinue::ProcessExitedException);
  EXPECT_NE(err.text().find("No space left on device"), std::string::npos) << err.text();
  EXPECT_NE(err.text().find("retinue: no space is left on the disk under " + logs_), std::string::npos) << err.text();
}

TEST_F(FullDisk, AStartThatCannotMakeItsFilesSaysWhy) {
  // As many files as the disk can have: what is made for the first ranks goes again.
  try {
    const std::vector<Program> programs(200, Program{"true", {}, {}});
    retinue::start_processes({.log_dir = logs_, .redirects = Std::kAll}, programs).join();
    ADD_FAILURE() << "600 files fitted";
  } catch (const retinue::SystemError& error) {
    EXPECT_EQ(error.errno_value(), ENOSPC) << error.what();
    EXPECT_NE(std::string(error.what()).find("making " + logs_), std::string::npos) << error.what();
  }
  EXPECT_TRUE(std::filesystem::is_empty(logs_));
}

}  // namespace

int main(int argc, char** argv) {
  const Folder folder;
  disk = mount_small_disk(folder);
  int result = 1;
  {
    retinue::Runtime runtime(argc, argv);
    testing::InitGoogleTest(&argc, argv);
    result = RUN_ALL_TESTS();
  }
  umount(disk.c_str());
  return result;
}
