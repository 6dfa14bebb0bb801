// Kills a process, or has another one come, at each point of what it does with a FileStore's file. The sources are
// compiled here once more, with these points in them, and records are written a few bytes at a time.
#define RETINUE_CRASH_POINTS
#include "os/files/shared_file.cpp"  // NOLINT(bugprone-suspicious-include)
#include "store/file_store.cpp"      // NOLINT(bugprone-suspicious-include)
#include "store/log_file.cpp"        // NOLINT(bugprone-suspicious-include)

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <csignal>
#include <functional>
#include <memory>
#include <string>

#include "store/places.h"
#include "support/says.h"
#include "support/usage_error.h"

namespace retinue {

long points_left = 0;  // 0: none is meant.
std::function<void()> at_point = [] { kill(getpid(), SIGKILL); };

void crash_here() {
  if (points_left > 0 && --points_left == 0) at_point();
}

namespace {

using namespace std::chrono_literals;
using test::says;

class FileCrashTest : public testing::Test {
 protected:
  /// `body` in a process that is killed at this point. True: it came to its end before.
  static bool survives(long point, const std::function<void()>& body) {
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      points_left = point;
      body();
      _exit(0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status);
  }

  test::TemporaryFolder folder_;
  std::string path_ = folder_.file("store");
};

TEST_F(FileCrashTest, AWriterKilledAnywhereLeavesOldOrNew) {
  FileStore store({.path = path_});
  long point = 1;
  for (bool is_over = false; !is_over; ++point) {
    store.set("key", "old");
    const std::int64_t count = store.add("count", 0);
    is_over = survives(point, [&] {
      FileStore victim({.path = path_});
      victim.set("key", std::string(50, 'n'));
      victim.add("count", 1);
      victim.delete_key("key");
    });
    const std::int64_t counted = store.add("count", 0) - count;
    const std::string key = store.check({"key"}) ? store.get("key") : "none";
    if (counted == 0) {
      EXPECT_TRUE(key == "old" || key == std::string(50, 'n')) << key;
    } else {
      EXPECT_TRUE(key == std::string(50, 'n') || key == "none") << key;
    }
    EXPECT_EQ(counted, is_over ? 1 : counted & 1);
  }
  EXPECT_GT(point, 25);
}

TEST_F(FileCrashTest, WhoIsKilledWhileItMakesTheFileStopsNobody) {
  long point = 1;
  for (bool is_over = false; !is_over; ++point) {
    is_over = survives(point, [&] { FileStore victim({.path = path_, .job = "a job of some name"}); });
    FileStore store({.path = path_, .job = "a job of some name"});
    store.set("key", "value");
    EXPECT_EQ(FileStore({.path = path_}).get("key"), "value");
    remove_file(path_);
  }
  EXPECT_GT(point, 8);
}

TEST_F(FileCrashTest, WhoIsKilledWhileItJoinsIsNoticedOrWasNeverThere) {
  int refused = 0;
  int taken = 0;
  long point = 1;
  for (bool is_over = false; !is_over; ++point) {
    auto first = std::make_unique<FileStore>(FileStoreOptions{.path = path_, .world_size = 2});
    is_over = survives(point, [&] {
      FileStore victim({.path = path_, .world_size = 2});
      points_left = 0;
    });
    try {
      if (!is_over) {
        const FileStore second({.path = path_, .world_size = 2});
        ++taken;
      }
    } catch (const UsageError& error) {
      ++refused;
      EXPECT_NE(std::string(error.what()).find("delete it"), std::string::npos) << error.what();
    }
    first.reset();
    remove_file(path_);
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(taken, 0);
}

TEST_F(FileCrashTest, WhoIsKilledWhileItLeavesHasLeftOrNot) {
  int left = 0;
  int stayed = 0;
  long point = 1;
  for (bool is_over = false; !is_over; ++point) {
    is_over = survives(point, [&] {
      const long wanted = std::exchange(points_left, 0);
      FileStore victim({.path = path_, .world_size = 1});
      points_left = wanted;
    });
    if (access(path_.c_str(), F_OK) != 0) {
      ++left;
      continue;
    }
    ++stayed;
    EXPECT_NE(
        test::usage_error_of([&] { FileStore({.path = path_, .world_size = 1}); }).find("have all joined already"),
        std::string::npos);
    remove_file(path_);
  }
  EXPECT_GT(left, 1);
  EXPECT_GT(stayed, 0);
}

/// Neither waits for the other, which is of another job.
TEST_F(FileCrashTest, WhoeverCountDifferentlyAreToldWhereverTheyMeet) {
  const auto dies = at_point;
  int came = 0;
  long point = 1;
  for (bool is_over = false; !is_over; ++point) {
    std::unique_ptr<FileStore> first;
    std::unique_ptr<FileStore> second;
    bool has_come = false;
    const auto come = [&](std::unique_ptr<FileStore>* store, int world_size, Store::Time timeout) {
      try {
        *store = std::make_unique<FileStore>(
            FileStoreOptions{.path = path_, .world_size = world_size, .is_meeting = true, .timeout = timeout});
      } catch (const TimeoutError&) {
        return false;  // The other one has its turn.
      } catch (const UsageError& error) {
        EXPECT_TRUE(says(error.what(), " members, but this job has ")) << error.what();
      }
      return true;
    };
    at_point = [&] { has_come = come(&second, 3, 1ms); };
    points_left = point;
    EXPECT_TRUE(come(&first, 2, 60s));
    is_over = points_left > 0;
    points_left = 0;
    if (is_over) at_point();
    if (!has_come) continue;
    ++came;
    EXPECT_NE(first == nullptr, second == nullptr) << "at point " << point;
    FileStore* const waits = first != nullptr ? first.get() : second.get();
    ASSERT_NE(waits, nullptr) << "at point " << point;
    EXPECT_THROW(waits->wait({"key"}, 5s), UsageError) << "at point " << point;
  }
  EXPECT_GT(came, 1);
  at_point = dies;
}

}  // namespace
}  // namespace retinue
