#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/watched_job.h"
#include "examples/fashion_mnist_files.h"
#include "launch/log_files.h"
#include "support/paths.h"
#include "support/says.h"
#include "support/started_program.h"

namespace {

using retinue::test::Folder;
using retinue::test::listed_job;
using retinue::test::says;
using retinue::test::StartedProgram;
using retinue::test::unique_name;
using retinue::test::wait_until;

/// With --share-parameters, or without.
class TrainResnet : public testing::TestWithParam<const char*> {
 protected:
  TrainResnet() { retinue::test::write_fashion_mnist(data_.path(), 160, 20); }

  std::vector<std::string> flags(const std::string& checkpoints) const {
    std::vector<std::string> flags{"--data",        data_.path(), "--epochs",           "2", "--batch-size", "10",
                                   "--checkpoints", checkpoints,  "--checkpoint-every", "4", "--lr",         "0.02"};
    for (const char* flag : {"--min-accuracy", "0.05"}) flags.emplace_back(flag);
    if (*GetParam() != '\0') flags.emplace_back(GetParam());
    return flags;
  }

  const Folder data_;
  const Folder folder_;
};

std::string parameters_of(const std::string& output) {
  const std::size_t place = output.find(" parameters=");
  return place == std::string::npos ? "none in: " + output : output.substr(place + 12, 16);
}

TEST_P(TrainResnet, ContinuesAfterSigkillWithTheBitsOfAnUndisturbedRun) {
  StartedProgram undisturbed("train_resnet", flags(folder_.path() + "/undisturbed"));
  const std::string whole = undisturbed.read_all();
  EXPECT_EQ(undisturbed.wait_for_all(), 0) << whole;
  EXPECT_TRUE(says(whole, "epoch 2/2  loss ")) << whole;
  EXPECT_TRUE(says(whole, "train_resnet: ok accuracy=")) << whole;

  const std::string name = unique_name("resnet");
  const std::string checkpoints = folder_.path() + "/killed";
  std::vector<std::string> words{"run", "-n", "2", "--rdzv-id", name, "--max-restarts", "3"};
  words.emplace_back(RETINUE_BIN_DIR "/train_resnet");
  for (const std::string& flag : flags(checkpoints)) words.push_back(flag);
  StartedProgram killed("retinue", words);
  ASSERT_TRUE(wait_until([&] { return std::filesystem::exists(checkpoints + "/step-000000004.pt"); }));
  const nlohmann::json job = listed_job(name);
  ASSERT_FALSE(job.is_null());
  kill(job["ranks"][1]["pid"].get<pid_t>(), SIGKILL);
  const std::string rest = killed.read_all();
  EXPECT_EQ(killed.wait_for_all(), 0) << rest;
  EXPECT_TRUE(says(rest, "continues after step ")) << rest;
  EXPECT_EQ(parameters_of(rest), parameters_of(whole));
}

INSTANTIATE_TEST_SUITE_P(Optimizers, TrainResnet, testing::Values("", "--share-parameters"),
                         [](const auto& suffix) { return *suffix.param == '\0' ? "each" : "shared"; });

}  // namespace
