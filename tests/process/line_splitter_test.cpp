#include "process/logs/line_splitter.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

using retinue::LineSplitter;

namespace {

constexpr std::size_t kNoLimit = std::size_t{1} << 40;

/// All that is shown of `text` when it comes in portions of `portion` bytes.
std::string split(const std::string& text, std::size_t portion, std::vector<std::string> filters = {}) {
  LineSplitter splitter("[a]:", std::move(filters));
  std::string output;
  for (std::size_t at = 0; at < text.size(); at += portion) {
    const std::string_view part = std::string_view(text).substr(at, portion);
    EXPECT_EQ(splitter.take(part, output, kNoLimit), part.size());
  }
  splitter.finish(output);
  EXPECT_EQ(splitter.whole_line_bytes(), text.size());
  return output;
}

TEST(LineSplitter, LinesComeWholeInWhateverPortionsTheyCame) {
  for (const std::size_t portion : {1, 2, 3, 5, 100})
    EXPECT_EQ(split("one\n\nthree\n", portion), "[a]:one\n[a]:\n[a]:three\n") << portion;
}

TEST(LineSplitter, AnUnfinishedLineIsShownOnceAndMarked) {
  for (const std::size_t portion : {1, 4, 100})
    EXPECT_EQ(split("one\nhalf", portion), "[a]:one\n[a]:half [no newline]\n") << portion;
  EXPECT_EQ(split("", 1), "");
}

TEST(LineSplitter, BytesPassUntouched) {
  const std::string odd("a\0b\xff\xfe\x1b[0m\n\0\n", 12);
  EXPECT_EQ(split(odd, 3), std::string("[a]:") + odd.substr(0, 10) + "[a]:" + odd.substr(10));
  for (const std::size_t portion : {1, 2, 3, 100})
    EXPECT_EQ(split("of DOS\r\nand of Unix\n\r\n", portion), "[a]:of DOS\r\n[a]:and of Unix\n\r\n") << portion;
}

TEST(LineSplitter, ABarIsShownWhileItMoves) {
  for (const std::size_t portion : {1, 3, 100}) {
    EXPECT_EQ(split("\r10 %\r20 %\ndone\n", portion), "\r[a]:10 %\r[a]:20 %\n[a]:done\n") << portion;
    EXPECT_EQ(split("10 %\r20 %\r\ndone\n", portion), "[a]:10 %\r[a]:20 %\r\n[a]:done\n") << portion;
  }
  LineSplitter splitter("[a]:", {});
  std::string output;
  splitter.take("10 %\r", output, kNoLimit);
  EXPECT_EQ(output, "[a]:10 %\r");
  splitter.take("20 %", output, kNoLimit);
  EXPECT_EQ(output, "[a]:10 %\r") << "it may go on";
  EXPECT_EQ(splitter.whole_line_bytes(), 5u);
  splitter.take("\r", output, kNoLimit);
  EXPECT_EQ(output, "[a]:10 %\r[a]:20 %\r");
  EXPECT_EQ(split("loss 1\rnothing\r\nloss 2\r\n", 4, {"loss"}), "[a]:loss 1\r[a]:loss 2\r\n");
}

TEST(LineSplitter, ALongLineComesWhole) {
  const std::string line(std::size_t{1} << 20, 'x');
  EXPECT_EQ(split(line + "\n", 4096), "[a]:" + line + "\n");
}

TEST(LineSplitter, ALineWithoutMeasureComesInMarkedParts) {
  const std::string half(LineSplitter::kLongestLine, 'x');
  for (const std::size_t portion : {std::size_t{1} << 16, 3 * half.size()}) {
    const std::string output = split(half + half + "end\n", portion);
    const std::string part = "[a]:" + half + " [line goes on]\n";
    EXPECT_TRUE(output == part + part + "[a]:end\n") << output.size();
  }
}

TEST(LineSplitter, FiltersKeepLinesThatContainOneOfTheTexts) {
  EXPECT_EQ(split("loss 1\nnothing\nan error\n", 2, {"loss", "error"}), "[a]:loss 1\n[a]:an error\n");
  EXPECT_EQ(split("no\nloss", 2, {"loss"}), "[a]:loss [no newline]\n");
}

TEST(LineSplitter, StopsBeforeTheLineThatExceedsTheLimit) {
  LineSplitter splitter("[a]:", {});
  std::string output;
  EXPECT_EQ(splitter.take("12345\n12345\n12345\n", output, 20), 12u);
  EXPECT_EQ(output, "[a]:12345\n[a]:12345\n");
  EXPECT_EQ(splitter.whole_line_bytes(), 12u);
  EXPECT_EQ(splitter.take("a line that is longer than the limit\n", output, 20), 37u);
  EXPECT_EQ(splitter.take("x", output, 20), 1u);
  EXPECT_EQ(splitter.whole_line_bytes(), 49u);
}

TEST(LineSplitter, ALimitHoldsForALineThatBeganBefore) {
  LineSplitter splitter("", {});
  std::string output;
  EXPECT_EQ(splitter.take("ab", output, 6), 2u);
  EXPECT_EQ(splitter.take("cd\nefg\n", output, 6), 3u);
  EXPECT_EQ(output, "abcd\n");
  EXPECT_EQ(splitter.take("efg\n", output, 6), 4u);
}

TEST(LineSplitter, RestartsWithItsStream) {
  LineSplitter splitter("", {});
  std::string output;
  splitter.take("old\nhal", output, kNoLimit);
  splitter.restart();
  splitter.take("new\n", output, kNoLimit);
  EXPECT_EQ(output, "old\nnew\n");
  EXPECT_EQ(splitter.whole_line_bytes(), 4u);
}

}  // namespace
