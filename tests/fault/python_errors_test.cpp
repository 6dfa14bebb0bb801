// Error files between Retinue and the real PyTorch: a @record script below, a torchrun above.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/paths.h"

namespace {

/// A Python that has PyTorch; empty if there is none.
std::string find_python() {
  for (const char* python : {RETINUE_TORCH_PYTHON, RETINUE_SOURCE_DIR "/.retinue/venv-torch/bin/python3"})
    if (*python != '\0' && access(python, X_OK) == 0) return python;
  return {};
}

struct Result {
  int status;
  std::string output;  ///< Standard output and error together.
};

Result run(const std::string& command) {
  FILE* pipe = popen(("exec 2>&1; " + command).c_str(), "r");
  std::string output;
  char buffer[4096];
  while (const std::size_t bytes = fread(buffer, 1, sizeof buffer, pipe)) output.append(buffer, bytes);
  return {pclose(pipe), output};
}

class PythonErrors : public testing::Test {
 protected:
  void SetUp() override {
    if (python_.empty()) GTEST_SKIP() << "no Python with PyTorch: scripts/bootstrap torch installs one";
  }

  const std::string python_ = find_python();
};

TEST_F(PythonErrors, OfARecordedScriptIsNamedInTheReport) {
  const std::string folder = testing::TempDir() + "python_errors_XXXXXX";
  std::string made = folder;
  ASSERT_NE(mkdtemp(made.data()), nullptr);
  const Result result = run("TORCHELASTIC_ERROR_FILE=" + made + "/error.json " RETINUE_BIN_DIR "/retinue run -n 2 " +
                            python_ + " " RETINUE_SOURCE_DIR "/tests/fault/record_script.py");
  std::filesystem::remove_all(made);
  EXPECT_EQ(WEXITSTATUS(result.status), 1);
  // Not only in the script's own output.
  EXPECT_NE(result.output.find(") raised ValueError: row 7 has no label\n    Traceback (most"), std::string::npos)
      << result.output;
}

TEST_F(PythonErrors, TorchrunNamesTheExceptionOfACppProgram) {
  const Result result =
      run(python_ + " -m torch.distributed.run --standalone --nproc-per-node 1 --no-python " RETINUE_BIN_DIR
                    "/error_file_program program");
  EXPECT_NE(result.status, 0);
  // What torchrun shows as the failed worker's traceback.
  EXPECT_NE(result.output.find("traceback : std::runtime_error: the program's failure"), std::string::npos)
      << result.output;
  EXPECT_NE(result.output.find("fail_in_program"), std::string::npos) << result.output;
}

}  // namespace
