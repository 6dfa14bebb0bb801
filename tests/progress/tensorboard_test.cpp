// TensorBoard's own reader reads what a SummaryWriter writes.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "progress/log_folder.h"
#include "retinue/progress/summary_writer.h"

namespace retinue {
namespace {

using nlohmann::json;
using test::LogFolder;

class TensorBoard : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(python_))
      GTEST_SKIP() << "the package tensorboard is missing: run scripts/bootstrap tensorboard";
  }
  json read(const std::string& arguments) {
    const auto lines = test::run_script("2>/dev/null " + python_, "read_by_tensorboard.py", arguments);
    return lines.empty() ? json() : lines.back();
  }

  const std::string python_ = RETINUE_SOURCE_DIR "/.retinue/venv-tensorboard/bin/python3";
};

TEST_F(TensorBoard, ReadsScalarsTextsAndHistograms) {
  const LogFolder folder;
  const std::vector<double> values = {-3, -2.5, 0, 1e-13, 0.25, 0.26, 0.27, 7, 1e5};
  const std::vector<float> positive = {2, 3, 3};
  {
    SummaryWriter writer(folder.path());
    for (int step = 0; step < 30; ++step) writer.add_scalar("loss", 1.0 / (step + 1), step);
    writer.add_scalar("loss", std::numeric_limits<double>::quiet_NaN(), 30);
    writer.add_scalars("both", {{"a", 1}, {"b", 2}}, 4);
    writer.add_text("note", "some *text*", 3);
    writer.add_histogram("weights", values, 5);
    writer.add_histogram("positive", positive, 5);
    writer.add_histogram("nothing", std::vector<float>{std::numeric_limits<float>::infinity()}, 5);
  }
  const json found = read(folder.path().string());
  const json& loss = found["scalars"]["loss"];
  ASSERT_EQ(loss.size(), 31u);
  for (int step = 0; step < 30; ++step) {
    EXPECT_EQ(loss[step][0], step);
    EXPECT_EQ(std::stof(loss[step][1].get<std::string>()), static_cast<float>(1.0 / (step + 1)));
  }
  EXPECT_EQ(loss[30][1], "nan");
  EXPECT_EQ(found["texts"], (json{{"note/text_summary", "some *text*"}}));
  EXPECT_EQ(found["histograms"].size(), 2u);
  EXPECT_EQ(found["histograms"]["weights"], read("--histogram -3 -2.5 0 1e-13 0.25 0.26 0.27 7 1e5"));
  EXPECT_EQ(found["histograms"]["positive"], read("--histogram 2 3 3"));
  EXPECT_EQ(read((folder.path() / "both_b").string())["scalars"], (json{{"both", {{4, "2.0"}}}}));
}

TEST_F(TensorBoard, LeavesOutWhatAResumedRunPurges) {
  const LogFolder folder;
  {
    SummaryWriter writer(folder.path());
    for (int step = 0; step < 6; ++step) writer.add_scalar("loss", step, step);
  }
  {
    SummaryWriter writer(folder.path(), {.purge_step = 4, .filename_suffix = ".z"});
    writer.add_scalar("loss", 40, 4);
  }
  const json expected = json::parse(R"([[0, "0.0"], [1, "1.0"], [2, "2.0"], [3, "3.0"], [4, "40.0"]])");
  EXPECT_EQ(read(folder.path().string())["scalars"]["loss"], expected);
}

TEST_F(TensorBoard, ReadsAllWholeEventsWhereverAFileIsCutOff) {
  const LogFolder folder;
  {
    SummaryWriter writer(folder.path());
    for (int step = 0; step < 6; ++step) writer.add_scalar("loss", step, step);
    writer.add_text("note", "text", 3);
    writer.add_histogram("weights", std::vector<double>{1, 2}, 5);
  }
  EXPECT_GT(read("--cuts " + folder.event_files().at(0))["cuts"], 500);
}

}  // namespace
}  // namespace retinue
