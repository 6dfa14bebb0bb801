// Who dies, how, and when: afterwards nothing of the job is left, and who survives says what happened.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "support/started_program.h"

using retinue::test::StartedProgram;

namespace {

/// One row of the table: the role dies in the phase.
struct Row {
  const char* role;
  const char* phase;
  const char* fault;      ///< Place of the fault; empty: the victim program does it itself.
  const char* survivors;  ///< What the program must say; empty: it is the one that dies.
};

constexpr Row kRows[] = {
    {"program", "starting", "program.start", ""},
    {"program", "running", "", ""},
    {"program", "in a collective", "", ""},
    {"program", "shutting down", "program.shutdown", "ok"},
    {"guardian", "before the first line", "guardian.start", "guardian"},
    {"guardian", "starting", "guardian.fork:1", "guardian"},
    {"guardian", "running", "guardian.signal", "guardian"},
    {"guardian", "in a collective", "guardian.signal", "guardian"},
    {"guardian", "shutting down", "guardian.reap", "guardian"},
    {"clerk", "shutting down", "clerk.start", "so that the clerk is needed"},
    {"rank", "before the first line", "rank.born:1", "rank 1"},
    {"rank", "starting", "rank.start:1", "rank 1"},
    {"rank", "running", "", "rank 1"},
    {"rank", "in a collective", "", "rank 1"},
    {"rank", "shutting down", "rank.finish:1", ""},
    {"grandchild", "running", "", "ok"},
    {"daemon", "running", "", "ok"},
};

constexpr const char* kActions[] = {"kill", "segv", "exit"};

struct Cell {
  Row row;
  const char* action;
  const char* method;

  /// What the program says: a rank that exits with code 0 has not failed, unless its peers need it.
  std::string expected() const {
    const bool ends_well =
        std::string(row.role) == "rank" && std::string(action) == "exit" && std::string(row.phase) != "in a collective";
    return ends_well ? "ok" : row.survivors;
  }
  friend void PrintTo(const Cell& cell, std::ostream* stream) { *stream << cell.row.role << ' ' << cell.row.phase; }
};

std::vector<Cell> all_cells() {
  std::vector<Cell> cells;
  for (const Row& row : kRows)
    for (const char* action : kActions)
      for (const char* method : {"forkserver", "fork"}) {
        const bool guardian_forks =
            std::string(row.fault) == "guardian.fork:1" || std::string(row.fault) == "rank.born:1";
        if (guardian_forks && std::string(method) == "fork") continue;  // There the program forks.
        cells.push_back({row, action, method});
      }
  return cells;
}

std::string name_of(const testing::TestParamInfo<Cell>& info) {
  std::string name =
      std::string(info.param.row.role) + "_" + info.param.action + "_" + info.param.row.phase + "_" + info.param.method;
  for (char& letter : name)
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  return name;
}

/// An empty folder for temporary files that must be empty in the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    char path[] = "/tmp/retinue-kill-XXXXXX";
    path_ = mkdtemp(path);
    setenv("TMPDIR", path_.c_str(), 1);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  bool is_empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_;
};

class KillMatrix : public testing::TestWithParam<Cell> {};

TEST_P(KillMatrix, NothingIsLeftAndSurvivorsKnowWhy) {
  const auto& [row, action, method] = GetParam();
  const TemporaryFolder folder;
  unsetenv("RETINUE_FAULT");
  if (*row.fault != '\0') setenv("RETINUE_FAULT", (std::string(row.fault) + "=" + action).c_str(), 1);
  StartedProgram victim("kill_victim_program", {row.role, action, row.phase, method});
  const std::string output = victim.read_all();
  const int status = victim.wait_for_all();  // Ends when no process of the job is left, or by the test's time limit.
  EXPECT_NE(output.find(GetParam().expected()), std::string::npos) << output;
  EXPECT_TRUE(folder.is_empty());
  if (std::string(row.role) != "program" || std::string(action) == "exit") return;
  // A sanitizer's handler makes an exit of SIGSEGV.
  EXPECT_TRUE(WIFSIGNALED(status) || (std::string(action) == "segv" && WEXITSTATUS(status) != 0)) << output;
}

INSTANTIATE_TEST_SUITE_P(Cells, KillMatrix, testing::ValuesIn(all_cells()), name_of);

}  // namespace
