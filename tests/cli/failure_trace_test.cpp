// What is left of the last calls when a rank fails: RETINUE_TRACE_DIR, --trace-dir, and beside logs.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/shell_run.h"
#include "cli/torchfrtrace.h"
#include "support/paths.h"

using retinue::test::contains;
using retinue::test::shell_run;
using retinue::test::Torchfrtrace;

namespace {

constexpr const char* kCallingProgram = RETINUE_BIN_DIR "/calling_program";

class FailureTrace : public testing::Test {
 protected:
  FailureTrace() : folder_(std::filesystem::temp_directory_path() / ("retinue-failure-" + std::to_string(getpid()))) {
    std::filesystem::create_directory(folder_);
  }
  ~FailureTrace() override { std::filesystem::remove_all(folder_); }

  /// Runs a command in the folder.
  auto run(const std::string& command) const { return shell_run("cd '" + folder_.string() + "'; " + command); }
  /// The folder that the failure's text names.
  static std::string told_folder(const std::string& output) {
    const std::string before = "the last calls of all ranks are in ";
    const std::size_t at = output.find(before);
    if (at == std::string::npos) return "";
    return output.substr(at + before.size(), output.find(": trace.json", at) - at - before.size());
  }

  std::filesystem::path folder_;
};

TEST_F(FailureTrace, IsWhereTheFailureSays) {
  const auto failed = run(std::string("RETINUE_TRACE_DIR=traces ") + kCallingProgram + " dies 3");
  const std::string traces = told_folder(failed.output);
  ASSERT_TRUE(traces.starts_with((folder_ / "traces/calling_program-").string())) << failed.output;
  EXPECT_TRUE(traces.ends_with("/context_1")) << traces;
  std::ifstream file(traces + "/trace.json");
  const nlohmann::json trace = nlohmann::json::parse(file);
  int barriers = 0;
  int cut_off = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X" || event["cat"] != "collective") continue;
    barriers += event["name"] == "barrier" && event["args"]["state"] == "done" ? 1 : 0;
    cut_off += event["name"] == "all_reduce" && event["args"]["state"] != "done" ? 1 : 0;
  }
  EXPECT_EQ(barriers, 3);
  EXPECT_EQ(cut_off, 2);  // Failed, or under way when the rank was stopped for the other's death.
  for (const char* dump : {"rank_0", "rank_1", "rank_2"}) EXPECT_TRUE(std::filesystem::exists(traces + "/" + dump));
  const Torchfrtrace tool;
  if (const std::string problem = tool.problem(); !problem.empty()) GTEST_SKIP() << problem;
  const std::string verdict = tool.verdict_on(traces);
  EXPECT_TRUE(contains(verdict, "gloo:all_reduce 2 differs [2] ")) << verdict;
}

TEST_F(FailureTrace, OfRetinueRunIsInAFolderForEachAttempt) {
  const auto failed = run(std::string("$RETINUE run -n 2 --rdzv-id run7 --max-restarts 1 --trace-dir traces ") +
                          kCallingProgram + " dies-as-rank");
  EXPECT_EQ(WEXITSTATUS(failed.status), 128 + 9) << failed.output;
  const auto found = run("find traces -name trace.json | sed 's/run7[.][0-9a-f]*/RUN/' | sort");
  EXPECT_EQ(found.output, "traces/RUN/context_1/trace.json\ntraces/RUN/context_2/trace.json\n") << failed.output;
}

TEST_F(FailureTrace, IsBesideLogsWhereNobodyNamedAnotherPlace) {
  const auto failed =
      run(std::string("$RETINUE run -n 2 --rdzv-id logged --log-dir logs ") + kCallingProgram + " dies-as-rank");
  const std::string traces = (folder_ / "logs/logged/attempt_0/trace").string();
  EXPECT_EQ(told_folder(failed.output), traces) << failed.output;
  EXPECT_TRUE(std::filesystem::exists(traces + "/rank_1"));
}

TEST_F(FailureTrace, IsNotWrittenWithoutAFailureOrWithoutCalls) {
  EXPECT_EQ(run("$RETINUE run -n 2 --trace-dir traces true").status, 0);
  const auto failed = run("$RETINUE run -n 2 --trace-dir traces false");
  EXPECT_EQ(told_folder(failed.output), "") << failed.output;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "traces"));
}

TEST_F(FailureTrace, TakesNothingElseAlongWhenItsHelperDies) {
  const auto failed =
      run(std::string("RETINUE_FAULT=helper.trace=kill RETINUE_TRACE_DIR=traces ") + kCallingProgram + " dies 2");
  EXPECT_EQ(WEXITSTATUS(failed.status), 1);
  EXPECT_TRUE(contains(failed.output, "was killed by SIGKILL")) << failed.output;
  EXPECT_EQ(told_folder(failed.output), "") << failed.output;
}

TEST_F(FailureTrace, ThatCannotBeWrittenIsSaid) {
  std::filesystem::create_directory(folder_ / "traces");
  const auto refused = run(std::string("touch file; RETINUE_TRACE_DIR=file ") + kCallingProgram + " dies 2");
  EXPECT_TRUE(contains(refused.output, "trace_dir 'file' is not a directory")) << refused.output;
  const auto lost = run(std::string("RETINUE_TRACE_DIR=file/below ") + kCallingProgram + " dies 2");
  EXPECT_TRUE(contains(lost.output, "the last calls of rank are lost: making the folder ")) << lost.output;
  EXPECT_TRUE(contains(lost.output, "was killed by SIGKILL")) << lost.output;
}

}  // namespace
