// A SummaryWriter whose files can't be written.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <csignal>
#include <functional>

#include "progress/log_folder.h"
#include "retinue/base/error.h"
#include "retinue/progress/summary_writer.h"
#include "support/says.h"

namespace retinue {
namespace {

using nlohmann::json;
using test::events_in;
using test::json_lines;
using test::LogFolder;
using test::says;

/// No file of this process may be larger; a write gets EFBIG, as it gets ENOSPC on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

int errno_of_error(const std::function<void()>& call, const std::string& part) {
  try {
    call();
  } catch (const SystemError& error) {
    EXPECT_TRUE(says(error.what(), part)) << error.what();
    return error.errno_value();
  }
  return 0;
}

TEST(SummaryWriterErrors, FolderThatCannotBeMade) {
  const LogFolder folder;
  const auto file = folder.path() / "file";
  std::ofstream(file) << "text";
  EXPECT_EQ(errno_of_error([&] { SummaryWriter writer(file); }, "cannot make the folder " + file.string()), ENOTDIR);
  EXPECT_EQ(errno_of_error([&] { SummaryWriter writer(file / "in"); }, (file / "in").string()), ENOTDIR);
  EXPECT_NE(errno_of_error([&] { SummaryWriter writer("/proc/self/log"); }, "/proc/self/log"), 0);
  EXPECT_EQ(errno_of_error([&] { SummaryWriter writer("/proc/self"); }, "cannot make the file /proc/self/events"),
            ENOENT);
}

TEST(SummaryWriterErrors, AScalarWhoseFileCannotBeMadeIsInNoFile) {
  const LogFolder folder;
  SummaryWriter writer(folder.path());
  const std::string longest(300, 'k');
  EXPECT_EQ(errno_of_error(
                [&] {
                  writer.add_scalars("loss", {{longest, 1}}, 1);
                },
                "cannot make the folder"),
            ENAMETOOLONG);
  writer.close();
  EXPECT_EQ(folder.text_of("scalars.jsonl"), "");
}

TEST(SummaryWriterErrors, AFullDiskIsOneErrorAndLeavesWholeEvents) {
  const LogFolder folder;
  SummaryWriter writer(folder.path(), {.max_queue = 1000});
  {
    const FileSizeLimit limit(1000);
    for (int step = 0; step < 100; ++step) writer.add_scalar("loss", step, step);
    EXPECT_EQ(errno_of_error([&] { writer.flush(); }, folder.event_files().at(0)), EFBIG);
    writer.flush();
    const std::vector<json> events = events_in(folder.event_files().at(0));
    EXPECT_EQ(events.back()["left"], 0);
    EXPECT_GT(events.size(), 10u);
    EXPECT_LT(events.size(), 50u);
  }
  writer.add_scalar("loss", 500, 500);
  writer.close();
  const std::vector<json> events = events_in(folder.event_files().at(0));
  EXPECT_EQ(events.at(events.size() - 2)["step"], 500) << "it goes on where there is space again";
  EXPECT_EQ(json_lines(folder.text_of("scalars.jsonl")).back()["step"], 500);
}

TEST(SummaryWriterErrors, HalfALineIsTakenBack) {
  const LogFolder folder;
  SummaryWriter writer(folder.path(), {.max_queue = 1000});
  const FileSizeLimit limit(1000);
  // An event is shorter than such a line, so the lines are too many first.
  for (int step = 0; step < 12; ++step)
    writer.add_scalar("a tag of \"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"", 0.123456789012345, step);
  EXPECT_EQ(errno_of_error([&] { writer.flush(); }, "scalars.jsonl"), EFBIG);
  const std::string text = folder.text_of("scalars.jsonl");
  EXPECT_GT(text.size(), 500u);
  EXPECT_EQ(text.back(), '\n');
  for (const json& line : json_lines(text)) EXPECT_FALSE(line.is_discarded());
}

TEST(SummaryWriterErrors, TheDestructorTellsOnce) {
  const LogFolder folder;
  const FileSizeLimit limit(1000);  // Of the captured file, too.
  testing::internal::CaptureStderr();
  {
    SummaryWriter writer(folder.path(), {.max_queue = 1000});
    for (int step = 0; step < 100; ++step) writer.add_scalar("loss", step, step);
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(test::count_of(text, "retinue: SummaryWriter: cannot write"), 1) << text;
  EXPECT_EQ(test::count_of(text, "\n"), 1) << text;
}

}  // namespace
}  // namespace retinue
