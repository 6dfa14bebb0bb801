// The error file that a torchrun above finds when a C++ program has failed.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "process/failure/error_file.h"
#include "support/started_program.h"

using retinue::ErrorReport;
using retinue::test::StartedProgram;

namespace {

class ProgramErrorFile : public testing::Test {
 protected:
  ProgramErrorFile() {
    std::string folder = testing::TempDir() + "program_error_file_XXXXXX";
    folder_ = mkdtemp(folder.data());
    path_ = folder_ / "error.json";
    setenv("TORCHELASTIC_ERROR_FILE", path_.c_str(), 1);
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
  }
  ~ProgramErrorFile() override {
    unsetenv("TORCHELASTIC_ERROR_FILE");
    std::filesystem::remove_all(folder_);
  }

  /// Runs the program to its end; its wait() status.
  static int run(const std::string& how) { return StartedProgram("error_file_program", {how}).wait_for_all(); }

  ErrorReport report() const {
    const auto [report, problem] = retinue::read_error_file(path_);
    EXPECT_EQ(problem, "");
    return report;
  }

  std::filesystem::path folder_;
  std::filesystem::path path_;
};

TEST_F(ProgramErrorFile, TellsOfARanksException) {
  EXPECT_EQ(WEXITSTATUS(run("rank")), 1);
  const ErrorReport found = report();
  EXPECT_EQ(found.type, "std::out_of_range");
  EXPECT_EQ(found.message, "the rank's failure");
  EXPECT_NE(found.stack.find("fail_in_rank"), std::string::npos) << found.stack;
  EXPECT_EQ(found.error_code, 1);
}

TEST_F(ProgramErrorFile, TellsOfAnExceptionThatLeavesMain) {
  EXPECT_EQ(WTERMSIG(run("program")), SIGABRT);
  const ErrorReport found = report();
  EXPECT_EQ(found.type, "std::runtime_error");
  EXPECT_EQ(found.message, "the program's failure");
  EXPECT_NE(found.stack.find("fail_in_program"), std::string::npos) << found.stack;
  EXPECT_EQ(found.error_code, -SIGABRT);
  EXPECT_TRUE(found.timestamp_s.has_value());
}

TEST_F(ProgramErrorFile, TellsOfARanksExceptionThatLeavesMain) {
  EXPECT_EQ(WTERMSIG(run("uncaught rank")), SIGABRT);
  const ErrorReport found = report();
  EXPECT_EQ(found.type, "retinue::ProcessRaisedException");
  EXPECT_NE(found.message.find("raised std::out_of_range: the rank's failure"), std::string::npos) << found.message;
}

TEST_F(ProgramErrorFile, IsWholeWhenTwoThreadsFail) {
  EXPECT_EQ(WTERMSIG(run("two threads")), SIGABRT);
  const std::string type = report().type;
  EXPECT_TRUE(type == "std::runtime_error" || type == "std::length_error") << type;
}

TEST_F(ProgramErrorFile, TellsOfACrash) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers make of a SIGSEGV what they like";
#endif
  EXPECT_EQ(WTERMSIG(run("signal")), SIGSEGV);
  const ErrorReport found = report();
  EXPECT_EQ(found.type, "SIGSEGV");
  EXPECT_NE(found.stack.find("main"), std::string::npos) << found.stack;
}

TEST_F(ProgramErrorFile, IsNotWrittenForAnEndWithoutAFailure) {
  EXPECT_EQ(WEXITSTATUS(run("return")), 0);
  EXPECT_EQ(WEXITSTATUS(run("exit")), 3);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(ProgramErrorFile, ThatCannotBeWrittenChangesNoEnding) {
  setenv("TORCHELASTIC_ERROR_FILE", (folder_ / "missing" / "error.json").c_str(), 1);
  EXPECT_EQ(WTERMSIG(run("program")), SIGABRT);
  EXPECT_EQ(WEXITSTATUS(run("rank")), 1);
}

// The test's time limit is what says that it waited.
TEST_F(ProgramErrorFile, IsNotWaitedForWithoutAGuardian) {
  EXPECT_EQ(WTERMSIG(run("without guardian")), SIGABRT);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

}  // namespace
