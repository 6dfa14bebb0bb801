// What retinue-bench prints without measuring much.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <string>
#include <vector>

#include "support/ranks.h"
#include "support/started_program.h"

namespace retinue::test {
namespace {

std::string output_of(std::vector<std::string> arguments) {
  StartedProgram bench("retinue-bench", std::move(arguments));
  std::string text = bench.read_all();
  const int status = bench.wait_for_all();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << text;
  return text;
}

TEST(RetinueBench, ExplainsThePathsOfEachCollective) {
  const std::string text = output_of({"--explain", "--ranks", "3"});
  EXPECT_NE(text.find("borders for 3 ranks"), std::string::npos) << text;
  for (const char* name : {"all_reduce ", "broadcast ", "all_gather ", "reduce ", "gather ", "scatter ",
                           "reduce_scatter ", "all_to_all ", "scan ", "all_reduce_coalesced "})
    EXPECT_NE(text.find(std::string("\n") + name), std::string::npos) << name << " is missing in\n" << text;
}

TEST(RetinueBench, MeasuresTheEndOfAPeer) {
  if (is_sanitized()) GTEST_SKIP() << "holds 1 GiB";
  const std::string text = output_of({"peer_lost", "--rounds", "1"});
  EXPECT_NE(text.find("\npeer_lost      parked-1GiB "), std::string::npos) << text;
}

TEST(RetinueBench, MeasuresWhatTheMachineAllows) {
  const std::string text = output_of({"bounds", "--rounds", "1"});
  EXPECT_NE(text.find(" line-round-trip "), std::string::npos) << text;
  EXPECT_NE(text.find(" read-and-write "), std::string::npos) << text;
}

TEST(RetinueBench, CountsContextSwitchesBesideABusyProgram) {
  const std::string text = output_of({"barrier", "--ranks", "3", "--rounds", "1", "--calls", "2000", "--busy"});
  EXPECT_NE(text.find(" switches of a rank in a call"), std::string::npos) << text;
}

}  // namespace
}  // namespace retinue::test
