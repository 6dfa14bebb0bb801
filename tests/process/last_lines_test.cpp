#include "process/failure/last_lines.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace retinue {
namespace {

using Lines = std::vector<std::string>;

class LastLines : public testing::Test {
 protected:
  LastLines() {
    std::string folder = testing::TempDir() + "last_lines_XXXXXX";
    folder_ = mkdtemp(folder.data());
    path_ = folder_ / "stderr.log";
  }
  ~LastLines() override { std::filesystem::remove_all(folder_); }

  Lines of(const std::string& text, std::size_t count) {
    std::ofstream(path_, std::ios::binary) << text;
    return last_lines(path_, count);
  }

  std::filesystem::path folder_;
  std::filesystem::path path_;
};

TEST_F(LastLines, AreTheLastOnes) {
  EXPECT_EQ(of("one\ntwo\nthree\n", 2), (Lines{"two", "three"}));
  EXPECT_EQ(of("one\n\n\ntwo\nhalf", 9), (Lines{"one", "two", "half"}));
  EXPECT_EQ(of("", 9), Lines{});
  EXPECT_EQ(of("\n\n", 9), Lines{});
  EXPECT_EQ(of("one\n", 0), Lines{});
}

TEST_F(LastLines, AreFitForAConsole) {
  EXPECT_EQ(of("10%\r50%\r90%\nfailed\r\n", 9), (Lines{"90%", "failed"}));
  EXPECT_EQ(of(std::string("a\0b\x1b[31m\tc", 9), 9), (Lines{"a.b.[31m\t"}));
}

TEST_F(LastLines, OfAHugeFileCostNoMoreThanItsEnd) {
  std::ofstream(path_) << "the beginning\n";
  std::filesystem::resize_file(path_, std::uintmax_t{1} << 40);  // A hole.
  std::ofstream(path_, std::ios::app) << "\nthe end\n";
  const Lines lines = last_lines(path_, 1);
  EXPECT_EQ(lines, Lines{"the end"});
}

TEST_F(LastLines, OfNoFileAreNone) {
  EXPECT_EQ(last_lines("", 9), Lines{});
  EXPECT_EQ(last_lines(path_, 9), Lines{});
  EXPECT_EQ(last_lines(folder_, 9), Lines{});
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(last_lines(path_, 9), Lines{}) << "a pipe without a writer must not be waited for";
}

}  // namespace
}  // namespace retinue
