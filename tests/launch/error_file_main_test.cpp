// Ranks that are programs and tell of their failure in an error file, as Python's @record does.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "process/failure/error_file.h"
#include "retinue/launch/spawn.h"
#include "support/paths.h"

using retinue::ProcessException;
using retinue::ProcessExitedException;
using retinue::ProcessRaisedException;
using retinue::Program;
using retinue::RankEnd;

namespace {

constexpr const char* kWrite =
    R"(printf %s '{"message": {"message": "ValueError: bad row", "extraInfo": {"py_callstack": "Traceback x\nValueError: )"
    R"(bad row\n", "timestamp": "1"}}}' >"$TORCHELASTIC_ERROR_FILE"; )";

class RankErrorFile : public testing::Test {
 protected:
  RankErrorFile() {
    std::string folder = testing::TempDir() + "rank_error_file_XXXXXX";
    folder_ = mkdtemp(folder.data());
  }
  ~RankErrorFile() override { std::filesystem::remove_all(folder_); }

  std::string file_of(int rank) const { return folder_ / (std::to_string(rank) + ".json"); }

  /// A shell script as a rank with an error file of its own.
  Program script(int rank, const std::string& text) const {
    return {"sh", {"-c", text}, {{"TORCHELASTIC_ERROR_FILE", file_of(rank)}}};
  }

  template <class Exception>
  static Exception failure_of(const std::vector<Program>& programs) {
    try {
      retinue::start_processes({}, programs).join();
    } catch (const Exception& error) {
      return error;
    }
    throw std::logic_error("no rank failed");
  }

  std::filesystem::path folder_;
};

TEST_F(RankErrorFile, NamesTheProgramsOwnException) {
  const auto error =
      failure_of<ProcessRaisedException>({script(0, "exec sleep 1000"), script(1, std::string(kWrite) + "exit 5")});
  EXPECT_EQ(error.rank(), 1);
  EXPECT_EQ(error.outcome().type, "ValueError");
  EXPECT_EQ(error.outcome().message, "bad row");
  EXPECT_EQ(error.outcome().stack, "Traceback x\nValueError: bad row\n");
  EXPECT_EQ(error.outcome().exit_code, 5);
  EXPECT_NE(std::string(error.what()).find("raised ValueError: bad row"), std::string::npos) << error.what();
  EXPECT_EQ(error.outcomes()[0].end, RankEnd::kStopped);
}

TEST_F(RankErrorFile, ThatIsCorruptIsSaidInTheMessage) {
  const auto error =
      failure_of<ProcessExitedException>({script(0, "printf '{\"message' >\"$TORCHELASTIC_ERROR_FILE\"; exit 5")});
  EXPECT_EQ(error.exit_code(), 5);
  EXPECT_NE(std::string(error.what()).find("exited with code 5: (its error file " + file_of(0) + " is not valid JSON"),
            std::string::npos)
      << error.what();
}

TEST_F(RankErrorFile, OfAnEarlierRunIsNotTakenForThisOnes) {
  std::ofstream(file_of(0)) << R"({"message": "old news"})";
  const auto error = failure_of<ProcessExitedException>({script(0, "exit 5")});
  EXPECT_EQ(error.outcome().message, "");
  EXPECT_EQ(error.outcome().type, "");
}

TEST_F(RankErrorFile, DoesNotHideASignal) {
  const auto error = failure_of<ProcessExitedException>({script(0, std::string(kWrite) + "kill -9 $$")});
  EXPECT_EQ(error.signal(), SIGKILL);
  EXPECT_NE(std::string(error.what()).find("its error file: ValueError: bad row"), std::string::npos) << error.what();
}

TEST_F(RankErrorFile, OfARankThatReturnsAllTheSameIsNoFailure) {
  EXPECT_NO_THROW(retinue::start_processes({}, {script(0, std::string(kWrite) + "exit 0")}).join());
}

TEST_F(RankErrorFile, ThatSeveralFailedRanksShareIsNobodys) {
  Program first = script(0, std::string(kWrite) + "exit 5");
  // It answers the job's SIGTERM with a code of its own, so that it could have written the file too.
  Program second = script(0, "trap 'exit 6' TERM; echo >" + file_of(9) + "; while :; do sleep 0.01; done");
  first.arguments[1] = "while ! test -e " + file_of(9) + "; do sleep 0.01; done; " + first.arguments[1];
  const auto error = failure_of<ProcessExitedException>({first, second});
  EXPECT_EQ(error.exit_code(), 5);
  EXPECT_EQ(error.outcome().type, "");
  EXPECT_EQ(error.outcome().message, "");
  EXPECT_EQ(retinue::read_error_file(file_of(0)).report.type, "ValueError") << "what a rank wrote must stay";
}

TEST_F(RankErrorFile, IsWrittenForAProgramWithARuntime) {
  const std::string program = std::string(RETINUE_BIN_DIR) + "/error_file_program";
  const auto error = failure_of<ProcessException>({{program, {"program"}, {{"TORCHELASTIC_ERROR_FILE", file_of(0)}}}});
  EXPECT_EQ(error.outcome().type, "std::runtime_error");
  const auto [report, problem] = retinue::read_error_file(file_of(0));
  EXPECT_EQ(problem, "");
  EXPECT_EQ(report.type, "std::runtime_error");
  EXPECT_NE(report.stack.find("fail_in_program"), std::string::npos) << report.stack;
}

TEST_F(RankErrorFile, IsWrittenForAProgramThatIsKilled) {
  const auto error = failure_of<ProcessExitedException>({script(0, "kill -9 $$")});
  const auto [report, problem] = retinue::read_error_file(file_of(0));
  EXPECT_EQ(problem, "");
  EXPECT_EQ(report.type, "SIGKILL");
  EXPECT_EQ(report.error_code, -SIGKILL);
}

void fail_inside(retinue::RankContext&) {
  throw std::runtime_error("a failure that is handled");
}

void handle_a_nested_failure(retinue::RankContext&) {
  try {
    retinue::spawn<fail_inside>({.nprocs = 1});
  } catch (const ProcessRaisedException&) {
    std::_Exit(3);
  }
}

/// What a rank starts inherits its environment, but not its error file.
TEST_F(RankErrorFile, IsNotForWhatTheRankStarts) {
  try {
    retinue::spawn<handle_a_nested_failure>({.environment = {{0, {{"TORCHELASTIC_ERROR_FILE", file_of(0)}}}}});
    ADD_FAILURE() << "spawn returned although the rank failed";
  } catch (const ProcessExitedException& error) {
    EXPECT_EQ(error.exit_code(), 3) << error.what();
  }
  EXPECT_FALSE(std::filesystem::exists(file_of(0)));
}

}  // namespace
