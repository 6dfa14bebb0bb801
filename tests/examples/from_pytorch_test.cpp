#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "support/paths.h"
#include "support/started_program.h"

namespace {

using Lines = std::vector<std::string>;

// Sorted, as Lines of programs are here: processes print in any order.
const Lines kOfProcesses = {
    "exit code 0\n",     "rank 0: spawned\n", "rank 1 failed\n",
    "rank 1: spawned\n", "rank 7: alone\n",   "sum of the rows 30, table [0, 2, 4, 6, 8, 10]\n",
};
const Lines kOfRanks = {
    "from epoch 0: y = 1.99 x + 1.00\n",
    "from epoch 3: y = 2.00 x + 1.00\n",
    "rank 0: got 1 and 0\n",
    "rank 0: sum 3, largest 10, all [0, 5, 1, 6], seed 42\n",
    "rank 1: got 0 and 3\n",
    "rank 1: sum 3, largest 10, all [0, 5, 1, 6], seed 42\n",
};

Lines of_both() {
  Lines lines = kOfProcesses;
  lines.insert(lines.end(), kOfRanks.begin(), kOfRanks.end());
  std::sort(lines.begin(), lines.end());
  return lines;
}

class FromPytorchExample : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "retinue-from-pytorch-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  /// What the program prints when its last argument is a folder.
  Lines lines_of(const std::string& file, Lines arguments) const {
    arguments.push_back(folder_);
    retinue::test::StartedProgram program(file, arguments);
    Lines lines;
    for (std::string line = program.read_line(); !line.empty(); line = program.read_line()) lines.push_back(line);
    EXPECT_EQ(program.wait_for_all(), 0);
    std::sort(lines.begin(), lines.end());
    return lines;
  }

  std::string folder_;
};

TEST_F(FromPytorchExample, PrintsWhatThePageSays) {
  EXPECT_EQ(lines_of("from_pytorch", {}), of_both());
}

TEST_F(FromPytorchExample, IsARankUnderTheCommand) {
  EXPECT_EQ(lines_of("retinue", {"run", "-n", "2", RETINUE_BIN_DIR "/from_pytorch"}), kOfRanks);
}

TEST_F(FromPytorchExample, PythonPrintsTheSame) {
  const std::string python = RETINUE_TORCH_PYTHON;
  if (python.empty()) GTEST_SKIP() << "no Python with PyTorch: scripts/bootstrap torch installs one";
  setenv("OMP_NUM_THREADS", "1", 1);
  unsetenv("PYTHONUNBUFFERED");  // It writes the end of a line apart, and ranks share the pipe.
  EXPECT_EQ(lines_of(python, {RETINUE_SOURCE_DIR "/examples/from_pytorch.py"}), of_both());
}

}  // namespace
