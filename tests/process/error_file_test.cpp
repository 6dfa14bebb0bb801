#include "process/failure/error_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "os/sync/clock.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

class ErrorFile : public testing::Test {
 protected:
  ErrorFile() {
    std::string folder = testing::TempDir() + "error_file_XXXXXX";
    folder_ = mkdtemp(folder.data());
    path_ = folder_ / "error.json";
  }
  ~ErrorFile() override { std::filesystem::remove_all(folder_); }

  std::size_t count_files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::filesystem::path folder_;
  std::filesystem::path path_;
};

RankOutcome raised() {
  RankOutcome outcome;
  outcome.end = RankEnd::kRaised;
  outcome.exit_code = 1;
  outcome.type = "std::runtime_error";
  outcome.message = "no data\ncaused by int: 5";
  outcome.stack = "#0 train() at train.cpp:3\n";
  outcome.ended = std::chrono::nanoseconds(monotonic_ns());
  return outcome;
}

TEST_F(ErrorFile, HasTheSchemaOfPyTorch) {
  write_error_file(path_, error_report_of(raised()));
  std::ifstream file(path_);
  const auto json = nlohmann::json::parse(file);
  ASSERT_EQ(json.size(), 1u);
  const auto& message = json.at("message");
  EXPECT_EQ(message.at("message"), "std::runtime_error: no data\ncaused by int: 5");
  EXPECT_EQ(message.at("errorCode"), 1);
  EXPECT_EQ(message.at("extraInfo").at("py_callstack"),
            "std::runtime_error: no data\ncaused by int: 5\n#0 train() at train.cpp:3\n");
  const std::string timestamp = message.at("extraInfo").at("timestamp");
  EXPECT_NEAR(static_cast<double>(std::stoll(timestamp)), static_cast<double>(std::time(nullptr)), 60);
  EXPECT_EQ(count_files(), 1u) << "a temporary file was left";
}

TEST_F(ErrorFile, OfASignalNamesIt) {
  RankOutcome outcome;
  outcome.end = RankEnd::kSignaled;
  outcome.signal = SIGSEGV;
  outcome.message = "segmentation fault at address 0x0";
  const ErrorReport report = error_report_of(outcome);
  EXPECT_EQ(report.type, "SIGSEGV");
  EXPECT_EQ(report.error_code, -SIGSEGV);
}

TEST_F(ErrorFile, IsReadAsItWasWritten) {
  write_error_file(path_, error_report_of(raised()));
  const auto [report, problem] = read_error_file(path_);
  EXPECT_EQ(problem, "");
  EXPECT_EQ(report.type, "std::runtime_error");
  EXPECT_EQ(report.message, "no data\ncaused by int: 5");
  EXPECT_EQ(report.stack, "#0 train() at train.cpp:3\n");
  EXPECT_EQ(report.error_code, 1);
}

TEST_F(ErrorFile, IsUnderstoodInAllItsForms) {
  const auto python = parse_error_file(
      R"({"message": {"message": "ValueError: x: y", "extraInfo": {"py_callstack": "Traceback\n", "timestamp": "10"}}})");
  EXPECT_EQ(python.report.type, "ValueError");
  EXPECT_EQ(python.report.message, "x: y");
  EXPECT_EQ(python.report.stack, "Traceback\n");
  EXPECT_EQ(python.report.timestamp_s, 10);
  EXPECT_EQ(python.report.error_code, std::nullopt);
  for (const char* flat :
       {R"({"message": "it broke", "timestamp": 10})", R"({"message": "it broke", "timestamp": "10"})"}) {
    const auto read = parse_error_file(flat);
    EXPECT_EQ(read.problem, "");
    EXPECT_EQ(read.report.type, "");
    EXPECT_EQ(read.report.message, "it broke");
    EXPECT_EQ(read.report.timestamp_s, 10);
  }
  EXPECT_EQ(parse_error_file(R"({"message": "two words: no type"})").report.message, "two words: no type");
  EXPECT_EQ(parse_error_file(R"({"message": "torch.cuda.OutOfMemoryError: full"})").report.type,
            "torch.cuda.OutOfMemoryError");
  EXPECT_EQ(parse_error_file(R"({"message": {"message": 5, "extraInfo": 7, "errorCode": "x"}})").report.message, "5");
}

TEST_F(ErrorFile, ThatIsCorruptIsSaidToBe) {
  EXPECT_NE(parse_error_file("").problem, "");
  EXPECT_NE(parse_error_file(R"({"message": {"mess)").problem, "");
  EXPECT_NE(parse_error_file("[]").problem, "");
  EXPECT_NE(parse_error_file("5").problem, "");
  EXPECT_NE(parse_error_file(R"({"message": null})").problem, "");
  EXPECT_NE(parse_error_file(R"({"message": {}})").problem, "");
  EXPECT_NE(parse_error_file(std::string(100'000, '[')).problem, "");
  EXPECT_NE(read_error_file(path_).problem, "");
  EXPECT_NE(read_error_file(folder_).problem, "");
  std::ofstream(path_).flush();
  EXPECT_EQ(read_error_file(path_).problem, "is empty");
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(read_error_file(path_).problem, "is not a regular file");
}

TEST_F(ErrorFile, ReplacesAnOldOneWholeAndKeepsLinks) {
  std::ofstream(folder_ / "old.json") << std::string(1000, 'x');
  std::filesystem::create_symlink(folder_ / "old.json", path_);
  const FileStamp before = stamp_of_file(path_);
  write_error_file(path_, error_report_of(raised()));
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
  EXPECT_EQ(read_error_file(folder_ / "old.json").problem, "");
  EXPECT_NE(stamp_of_file(path_), before);
}

TEST_F(ErrorFile, ThatIsADeviceStaysOne) {
  EXPECT_NO_THROW(write_error_file("/dev/null", error_report_of(raised())));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST_F(ErrorFile, ThatCannotBeWrittenIsAnErrorThatNamesIt) {
  try {
    write_error_file(folder_ / "missing" / "error.json", error_report_of(raised()));
    FAIL() << "nothing was thrown";
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("missing/error.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace retinue
