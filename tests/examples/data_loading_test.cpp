#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cli/shell_run.h"
#include "launch/log_files.h"
#include "support/paths.h"
#include "support/says.h"

namespace {

namespace fs = std::filesystem;

using retinue::test::Folder;
using retinue::test::says;
using retinue::test::shell_run;

std::string last_line_of(const std::string& output) {
  return output.substr(output.rfind('\n', output.size() - 2) + 1);
}

TEST(DataLoadingExample, ContinuesInTheMiddleOfAnEpoch) {
  const Folder folder;
  const auto train = [&](const char* name, int epochs) {
    fs::create_directories(folder.path() + "/" + name);
    return shell_run(fmt::format(RETINUE_BIN_DIR "/data_loading {}/{} {}", folder.path(), name, epochs));
  };
  const auto begin = train("stopped", 2);
  EXPECT_EQ(begin.status, 0) << begin.output;
  EXPECT_TRUE(says(begin.output, "equal batches: yes\nbegins after step 0\nstep 30, loss ")) << begin.output;
  // Epochs have 15 steps: step 30 is the end of one, and 70 is in the middle of the next run's.
  const auto middle = train("stopped", 5);
  EXPECT_TRUE(says(middle.output, "begins after step 30\nstep 75, loss ")) << middle.output;
  const auto rest = train("stopped", 6);
  EXPECT_TRUE(says(rest.output, "begins after step 70\nstep 90, loss ")) << rest.output;
  const auto whole = train("whole", 6);
  EXPECT_EQ(last_line_of(rest.output), last_line_of(whole.output));
}

TEST(DataLoadingExample, ReadsFiles) {
  const Folder folder;
  const std::string golden = RETINUE_SOURCE_DIR "/tests/datasets/golden/";
  fs::copy_file(golden + "float32.npy", folder.path() + "/x.npy");
  fs::copy_file(golden + "int64.npy", folder.path() + "/y.npy");
  std::ofstream(folder.path() + "/houses.csv") << "rooms,area,price\n3,70,100\n4,90,150\n5,130,250\n";
  for (const char* name : {"cats", "dogs"}) {
    fs::create_directories(folder.path() + "/photos/" + name);
    fs::copy_file(golden + "rgb.jpg", folder.path() + "/photos/" + name + "/1.jpg");
  }
  const auto run = shell_run(RETINUE_BIN_DIR "/data_loading " + folder.path() + " 1");
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_TRUE(says(run.output, "2 rows\n3 houses\nclass cats\nclass dogs\n")) << run.output;
}

}  // namespace
