#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cli/torchfrtrace.h"
#include "cli/watched_job.h"
#include "support/started_program.h"

using retinue::test::contains;
using retinue::test::shell_run;
using retinue::test::StartedProgram;
using retinue::test::Torchfrtrace;

namespace {

/// A calling_program whose ranks have made their calls, and a folder for what is written of it.
class CallingJob {
 public:
  CallingJob(const std::string& what, int ranks)
      : program_("calling_program", {what, std::to_string(ranks)}),
        folder_(std::filesystem::temp_directory_path() / ("retinue-trace-" + std::to_string(program_.pid()))) {
    std::filesystem::create_directory(folder_);
    for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(program_.read_line(), "ready\n");
  }
  ~CallingJob() {
    kill(program_.pid(), SIGKILL);
    program_.wait_for_all();
    std::filesystem::remove_all(folder_);
  }

  auto trace(const std::string& flags) const {
    return shell_run("cd '" + folder_.string() + "' && $RETINUE trace " + std::to_string(program_.pid()) + " " + flags);
  }
  std::string path(const std::string& name) const { return folder_ / name; }
  nlohmann::json json(const std::string& name) const {
    std::ifstream file(path(name));
    return nlohmann::json::parse(file);
  }
  std::string pid() const { return std::to_string(program_.pid()); }

 private:
  StartedProgram program_;
  std::filesystem::path folder_;
};

std::vector<nlohmann::json> calls_of(const nlohmann::json& trace, int process) {
  std::vector<nlohmann::json> calls;
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "X" && event["cat"] != "waiting" && event["pid"] == process) calls.push_back(event);
  return calls;
}

std::map<std::pair<int, int>, std::string> names_of(const nlohmann::json& trace, const std::string& kind) {
  std::map<std::pair<int, int>, std::string> names;
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "M" && event["name"] == kind)
      names[{event["pid"], event.value("tid", 0)}] = event["args"]["name"];
  return names;
}

TEST(Trace, HasAProcessForEachRankAndATrackForEachGroup) {
  const CallingJob job("calls", 3);
  const auto written = job.trace("--out trace.json");
  ASSERT_EQ(written.status, 0) << written.output;
  EXPECT_TRUE(contains(written.output, "trace.json: open it in https://ui.perfetto.dev")) << written.output;
  const nlohmann::json trace = job.json("trace.json");
  const auto processes = names_of(trace, "process_name");
  ASSERT_EQ(processes.size(), 3u);
  const auto ranks = retinue::test::listed_job("calling_program-" + job.pid())["ranks"];
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(processes.at({rank + 1, 0}),
              "rank " + std::to_string(rank) + " (pid " + std::to_string(ranks[rank]["pid"].get<int>()) + ")");
  std::multiset<std::string> tracks;
  for (const auto& [place, name] : names_of(trace, "thread_name")) tracks.insert(name);
  EXPECT_EQ(tracks, (std::multiset<std::string>{"context 1/world", "context 1/world", "context 1/world",
                                                "context 1/world/part", "context 1/world/part",
                                                "context 1/world: messages", "context 1/world: messages"}));
}

TEST(Trace, TellsOfEachCallWhatItWas) {
  const CallingJob job("calls", 2);
  ASSERT_EQ(job.trace("--out trace.json").status, 0);
  const auto calls = calls_of(job.json("trace.json"), 2);
  std::vector<std::string> names;
  for (const auto& call : calls) names.push_back(call["name"]);
  ASSERT_EQ(names, (std::vector<std::string>{"all_reduce", "all_gather", "recv", "recv", "barrier", "barrier"}));
  const auto& reduced = calls[0]["args"];
  EXPECT_EQ(reduced["state"], "done");
  EXPECT_EQ(reduced["dtype"], "fp32");
  EXPECT_EQ(reduced["op"], "sum");
  EXPECT_EQ(reduced["count"], 100);
  EXPECT_EQ(reduced["bytes"], 400);
  EXPECT_EQ(reduced["sequence"], 1);
  EXPECT_TRUE(contains(reduced["site"], "calling_program.cpp:"));
  EXPECT_NEAR(reduced["waiting_us"].get<double>() + reduced["transfer_us"].get<double>(), calls[0]["dur"], 0.01);
  EXPECT_EQ(calls[2]["args"]["peer"], 0);
  EXPECT_EQ(calls[2]["args"]["tag"], 6);
  // No event reaches into the next one of its track.
  std::map<int, double> ends;
  for (const auto& call : calls) {
    EXPECT_GE(call["ts"].get<double>(), ends[call["tid"]] - 0.01);
    ends[call["tid"]] = call["ts"].get<double>() + call["dur"].get<double>();
  }
}

TEST(Trace, GoesToStandardOutputOrToAFileOfTheJobsName) {
  const CallingJob job("calls", 2);
  const auto shown = job.trace("--out -");
  EXPECT_EQ(nlohmann::json::parse(shown.output)["displayTimeUnit"], "ns");
  EXPECT_EQ(job.trace("").status, 0);
  EXPECT_TRUE(std::filesystem::exists(job.path("calling_program-" + job.pid() + ".trace.json")));
}

TEST(Trace, RefusesWhatItCannotWrite) {
  const CallingJob job("calls", 2);
  std::filesystem::create_directories(job.path("full/of"));
  const auto full = job.trace("--format pytorch --out full");
  EXPECT_EQ(WEXITSTATUS(full.status), 2);
  EXPECT_TRUE(contains(full.output, "full exists already")) << full.output;
  EXPECT_EQ(WEXITSTATUS(job.trace("--format pytorch --out -").status), 2);
  EXPECT_EQ(WEXITSTATUS(job.trace("--format xml").status), 2);
  EXPECT_TRUE(contains(job.trace("--out absent/trace.json").output, "absent/trace.json"));
  const auto other = job.trace("--context 7");
  EXPECT_EQ(WEXITSTATUS(other.status), 1);
  EXPECT_TRUE(contains(other.output, "no process of context 7")) << other.output;
}

TEST(Trace, SaysThatNothingWasRecorded) {
  StartedProgram program("waiting_program");
  program.read_line();
  const auto empty = shell_run("$RETINUE trace " + std::to_string(program.pid()) + " --out -");
  EXPECT_EQ(WEXITSTATUS(empty.status), 1);
  EXPECT_TRUE(contains(empty.output, "has recorded a call")) << empty.output;
  kill(program.pid(), SIGKILL);
  program.wait_for_all();
}

TEST(Trace, OfAGoodJobIsGoodForTorchfrtrace) {
  const Torchfrtrace tool;
  if (const std::string problem = tool.problem(); !problem.empty()) GTEST_SKIP() << problem;
  const CallingJob job("calls", 3);
  const auto written = job.trace("--format pytorch --out dumps");
  ASSERT_EQ(written.status, 0) << written.output;
  EXPECT_TRUE(contains(written.output, "torchfrtrace dumps")) << written.output;
  const std::string verdict = tool.verdict_on(job.path("dumps"));
  for (const char* call :
       {"context 1/world gloo:all_reduce 1 matches [] {}\n", "context 1/world gloo:all_gather 2 matches [] {}\n",
        "context 1/world gloo:barrier 3 matches [] {}\n", "context 1/world/part gloo:barrier 1 matches [] {}\n",
        "context 1/world 0->1 gloo:send 0->1 1 matches [] {}\n",
        "context 1/world 0->1 gloo:send 0->1 2 matches [] {}\n"})
    EXPECT_TRUE(contains(verdict, call)) << call << verdict;
  EXPECT_FALSE(contains(verdict, "differs")) << verdict;
}

TEST(Trace, OfAMismatchNamesTheSameRankForTorchfrtrace) {
  const Torchfrtrace tool;
  if (const std::string problem = tool.problem(); !problem.empty()) GTEST_SKIP() << problem;
  const CallingJob job("mismatch", 3);
  ASSERT_EQ(job.trace("--format pytorch --out dumps").status, 0);
  const std::string verdict = tool.verdict_on(job.path("dumps"));
  EXPECT_TRUE(contains(verdict, "context 1/world gloo:barrier 1 matches [] {}\n")) << verdict;
  EXPECT_TRUE(contains(verdict, "Culprit rank 1; Error type: COLLECTIVE_TYPE_MISMATCH")) << verdict;
  EXPECT_TRUE(contains(verdict, "context 1/world gloo:all_reduce 2 differs [] {1: ")) << verdict;
}

}  // namespace
