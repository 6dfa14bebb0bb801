// The job's report goes where the program said, whatever ranks write into job memory.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "ipc/memory/job_layout.h"
#include "launch/log_files.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"

using retinue::test::contents_of;
using retinue::test::Folder;

namespace {

std::string& folder() {
  static std::string path;
  return path;
}

void name_another_file(int, const std::string& file) {
  std::strcpy(retinue::JobMemory::current()->header().report, file.c_str());
}

TEST(ReportFile, IsNoRanksChoice) {
  const std::string other = folder() + "/other.html";
  for (int round = 0; round < 2; ++round) retinue::spawn<name_another_file>({}, other);
  EXPECT_EQ(contents_of(other), "<no file " + other + ">");
  EXPECT_NE(contents_of(folder() + "/report.html").find("\"contexts\":["), std::string::npos);
}

}  // namespace

int main(int argc, char** argv) {
  const Folder of_report;
  folder() = of_report.path();
  retinue::Runtime runtime(argc, argv, {.report = folder() + "/report.html"});
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
