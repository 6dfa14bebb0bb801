// Which files a FileStore takes, who removes them, and what a killed writer leaves.
#include "retinue/store/file_store.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "os/files/shared_file.h"
#include "retinue/base/error.h"
#include "store/file_log.h"
#include "store/places.h"
#include "support/usage_error.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;
using test::usage_error_of;

class FileStoreTest : public testing::Test {
 protected:
  FileStoreOptions of_world(int size, const std::string& job = "") const {
    return {.path = path_, .world_size = size, .job = job};
  }
  bool exists() const { return std::filesystem::exists(path_); }
  std::string bytes() const {
    std::ostringstream text;
    text << std::ifstream(path_, std::ios::binary).rdbuf();
    return text.str();
  }
  void write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }

  /// Which the members of a job that was killed left.
  void leave_file(int world_size, int members) const {
    const pid_t pid = fork();
    if (pid == 0) {
      std::vector<std::unique_ptr<FileStore>> stores;
      for (int i = 0; i < members; ++i) stores.push_back(std::make_unique<FileStore>(of_world(world_size)));
      stores.front()->set("key", "old");
      kill(getpid(), SIGKILL);
    }
    ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  }

  test::TemporaryFolder folder_;
  std::string path_ = folder_.file("store");
};

TEST_F(FileStoreTest, RefusesPathsThatCannotBe) {
  EXPECT_THROW(FileStore({.path = ""}), UsageError);
  EXPECT_THROW(FileStore({.path = folder_.file("none/store")}), SystemError);
  EXPECT_THROW(FileStore({.path = folder_.path()}), SystemError);
  EXPECT_THROW(FileStore({.path = path_, .world_size = 1 << 30}), UsageError);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THROW(FileStore({.path = path_}), UsageError);
}

TEST_F(FileStoreTest, LeavesOtherFilesAsTheyAre) {
  for (const std::string& text : {std::string("a letter to my aunt"), std::string(1000, '\0')}) {
    write(text);
    const std::string why = usage_error_of([&] { FileStore({.path = path_}); });
    EXPECT_NE(why.find(path_), std::string::npos) << why;
    EXPECT_NE(why.find("is not the file of a store"), std::string::npos) << why;
    EXPECT_EQ(bytes(), text);
  }
}

TEST_F(FileStoreTest, TheLastMemberRemovesTheFile) {
  auto first = std::make_unique<FileStore>(of_world(3));
  first->set("key", "value");
  first.reset();  // Before the others came.
  EXPECT_TRUE(exists());
  auto second = std::make_unique<FileStore>(of_world(3));
  auto third = std::make_unique<FileStore>(of_world(3));
  EXPECT_EQ(third->get("key"), "value");
  second.reset();
  EXPECT_TRUE(exists());
  third.reset();
  EXPECT_FALSE(exists());
  FileStore next(of_world(1));
  EXPECT_FALSE(next.check({"key"}));
}

TEST_F(FileStoreTest, OfAMeetingIsGoneWithTheLastThatLives) {
  FileStoreOptions options = of_world(3);
  options.is_meeting = true;
  { const FileStore alone(options); }
  EXPECT_FALSE(exists());
  {
    const FileStore first(options);
    const pid_t pid = fork();
    if (pid == 0) {
      const FileStore second(options);
      kill(getpid(), SIGKILL);
    }
    ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
    EXPECT_NE(usage_error_of([&] { FileStore third(options); }).find(" died"), std::string::npos);
  }
  EXPECT_FALSE(exists());
}

TEST_F(FileStoreTest, OfAMeetingWaitsForTheEndOfTheOneBefore) {
  FileStoreOptions options = of_world(2);
  options.is_meeting = true;
  auto first = std::make_unique<FileStore>(options);
  auto second = std::make_unique<FileStore>(options);
  EXPECT_NE(usage_error_of([&] { FileStore third(options); }).find("have all joined already"), std::string::npos);
  first.reset();
  options.timeout = 20ms;
  EXPECT_THROW(FileStore third(options), TimeoutError);
  options.timeout = 60s;
  std::thread leaver([&] { second.reset(); });
  const FileStore next(options);
  leaver.join();
  EXPECT_EQ(next.path(), path_);
  EXPECT_TRUE(exists());
}

/// As after a timeout: who tries again, and who comes late, are to be of one meeting.
TEST_F(FileStoreTest, OfAMeetingThatFailedIsNoneForWhoComes) {
  FileStoreOptions options = of_world(3);
  options.is_meeting = true;
  auto first = std::make_unique<FileStore>(options);
  std::make_unique<FileStore>(options).reset();
  options.timeout = 20ms;
  EXPECT_THROW(FileStore again(options), TimeoutError);
  options.timeout = 60s;
  std::thread leaver([&] { first.reset(); });
  const FileStore again(options);
  leaver.join();
  const FileStore second(options);
  const FileStore third(options);
  EXPECT_NE(usage_error_of([&] { FileStore fourth(options); }).find("have all joined already"), std::string::npos);
}

/// At a path that nobody chose nobody is asked to delete it, and none who waits there for a dead one is waited for.
TEST_F(FileStoreTest, OfAMeetingWhoseMembersAreDeadMayBeTakenOver) {
  FileStoreOptions options = of_world(2);
  options.is_meeting = true;
  leave_file(2, 1);
  EXPECT_NE(usage_error_of([&] { FileStore refused(options); }).find("died"), std::string::npos);
  options.takes_over = true;
  {
    const FileStore first(options);
    FileStore second(options);
    EXPECT_FALSE(second.check({"key"}));
  }
  options.world_size = 3;
  const FileStore waits(options);
  const pid_t pid = fork();
  if (pid == 0) {
    const FileStore dies(options);
    kill(getpid(), SIGKILL);
  }
  waitpid(pid, nullptr, 0);
  const std::string why = usage_error_of([&] { FileStore refused(options); });
  EXPECT_NE(why.find("died: end all ranks of this job, and start them again"), std::string::npos) << why;
}

TEST_F(FileStoreTest, StaysWhereTheNumberOfMembersIsUnknown) {
  FileStore({.path = path_, .world_size = -1}).set("key", "value");
  EXPECT_TRUE(exists());
  EXPECT_EQ(FileStore({.path = path_}).get("key"), "value");
}

TEST_F(FileStoreTest, RefusesTheFileOfAnEarlierJob) {
  leave_file(2, 2);
  std::string why = usage_error_of([&] { FileStore(of_world(2)); });
  EXPECT_NE(why.find(path_), std::string::npos) << why;
  EXPECT_NE(why.find("2 members have all joined already"), std::string::npos) << why;
  EXPECT_NE(why.find("delete it"), std::string::npos) << why;
  std::filesystem::remove(path_);
  leave_file(3, 1);
  why = usage_error_of([&] { FileStore(of_world(3)); });
  EXPECT_NE(why.find("was left over from a job whose member 0 (in the order of joining) died"), std::string::npos)
      << why;
  why = usage_error_of([&] { FileStore(of_world(2)); });
  EXPECT_NE(why.find("belongs to a job with 3 members, but this job has 2"), std::string::npos) << why;
}

TEST_F(FileStoreTest, RefusesTheFileOfAnotherJob) {
  FileStore mine(of_world(2, "mine"));
  const std::string why = usage_error_of([&] { FileStore(of_world(2, "yours")); });
  EXPECT_NE(why.find("belongs to the job 'mine', but this is the job 'yours'"), std::string::npos) << why;
  EXPECT_THROW(FileStore(of_world(1)), UsageError);
  FileStore another(of_world(2, "mine"));
  EXPECT_THROW(FileStore(of_world(2, "mine")), UsageError);
  FileStore watcher({.path = path_});
  mine.set("key", "value");
  EXPECT_EQ(watcher.get("key"), "value");
}

TEST_F(FileStoreTest, TellsThatTheFileIsGone) {
  FileStore watcher({.path = path_});
  std::filesystem::remove(path_);
  EXPECT_THROW(watcher.set("key", "value"), Closed);
  FileStore other({.path = path_});
  EXPECT_THROW(watcher.get("key"), Closed);
}

TEST_F(FileStoreTest, AWaitEndsWhenTheFileIsRemoved) {
  auto member = std::make_unique<FileStore>(of_world(1));
  FileStore watcher({.path = path_});
  std::thread waiting([&] { EXPECT_THROW(watcher.get("never"), Closed); });
  member.reset();
  waiting.join();
}

TEST_F(FileStoreTest, ATornRecordCountsAsNone) {
  {
    FileStore store({.path = path_});
    store.set("first", "1");
    store.set("second", std::string(100, '2'));
  }
  const std::string whole = bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write(whole.substr(0, size));
    FileStore store({.path = path_});
    EXPECT_FALSE(store.check({"second"}));
    const std::int64_t keys = store.num_keys();
    store.set("third", "3");
    FileStore other({.path = path_});
    EXPECT_EQ(other.get("third"), "3");
    EXPECT_EQ(other.num_keys(), keys + 1);
  }
}

TEST_F(FileStoreTest, SaysThatTheFileIsDamaged) {
  {
    FileStore store({.path = path_});
    store.set("first", "1");
    store.set("second", "2");
  }
  const std::string whole = bytes();
  const std::size_t place = whole.find("first");
  std::string damaged = whole;
  damaged[place] = 'F';
  write(damaged);
  const std::string why = usage_error_of([&] { FileStore({.path = path_}); });
  EXPECT_NE(why.find("damaged at byte"), std::string::npos) << why;
  EXPECT_EQ(bytes(), damaged);
}

TEST_F(FileStoreTest, SaysThatSomebodyShortenedTheFile) {
  FileStore store({.path = path_});
  store.set("first", "1");
  std::filesystem::resize_file(path_, 20);
  EXPECT_THROW(store.check({"first"}), UsageError);
}

TEST_F(FileStoreTest, AStoppedProcessWithTheLockEndsCallsInTime) {
  FileStore store({.path = path_});
  const FileDescriptor opened = make_shared_file(path_);
  ASSERT_TRUE(lock_file(opened.get(), FileLock::kExclusive, Deadline::after(10s)));
  for (const auto& call : std::vector<std::function<void()>>{[&] { store.set("key", "value", Deadline::after(5ms)); },
                                                             [&] { store.get("key", Deadline::after(5ms)); },
                                                             [&] { FileStore({.path = path_, .timeout = 5ms}); }}) {
    try {
      call();
      ADD_FAILURE() << "no TimeoutError";
    } catch (const TimeoutError& error) {
      EXPECT_NE(std::string(error.what()).find("holds its lock"), std::string::npos) << error.what();
    }
  }
  unlock_file(opened.get());
  EXPECT_FALSE(store.check({"key"}));
}

TEST_F(FileStoreTest, AForkIsNoMember) {
  auto store = std::make_unique<FileStore>(of_world(1));
  const pid_t pid = fork();
  if (pid == 0) {
    const bool is_refused = usage_error_of([&] { store->set("from", "fork"); }).find("fork") != std::string::npos;
    store.reset();
    _exit(is_refused && exists() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(exists());
}

TEST_F(FileStoreTest, SeesWhatComesWhereNothingTellsOfIt) {
  // As what another host wrote: the notice is for a file that isn't this one.
  FileWatch none(folder_.file("absent"));
  const auto before = std::chrono::steady_clock::now();
  none.wait(Deadline::after(3ms));
  EXPECT_GE(std::chrono::steady_clock::now() - before, 3ms);
}

TEST_F(FileStoreTest, IsForThisUserOnly) {
  const FileStore store({.path = path_});
  EXPECT_EQ(std::filesystem::status(path_).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

}  // namespace
}  // namespace retinue
