#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cli/shell_run.h"
#include "launch/log_files.h"
#include "support/paths.h"

namespace {

using nlohmann::json;
using retinue::test::Folder;
using retinue::test::shell_run;

TEST(ProgressExample, LogsLossAndStepTimes) {
  const Folder folder;
  const auto run = shell_run(RETINUE_BIN_DIR "/progress " + folder.path() + "/logs 2");
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_EQ(run.output, "");
  std::ifstream stream(folder.path() + "/logs/scalars.jsonl");
  std::vector<json> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
  ASSERT_EQ(lines.size(), 50u);
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i]["step"], i + 1);
  const auto loss = [&](std::size_t i) { return lines[i]["scalars"]["loss/train"].get<double>(); };
  EXPECT_LT(loss(49), loss(0));
  const json& scalars = lines[9]["scalars"];
  const auto part = [&](const char* name) { return scalars[fmt::format("step_time/{}", name)].get<double>(); };
  EXPECT_NEAR(part("data") + part("compute") + part("waiting") + part("communication"), part("total"), 1e-9);
  EXPECT_TRUE((std::set{0, 1}).contains(scalars["step_time/slowest_rank"].get<int>()));
  EXPECT_LE(scalars["step_time_min/compute"], scalars["step_time_max/compute"]);
  EXPECT_FALSE(lines[8]["scalars"].contains("step_time/total"));
}

}  // namespace
