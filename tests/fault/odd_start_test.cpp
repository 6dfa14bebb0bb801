// Programs that are started, or treated, in unusual ways.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "support/started_program.h"

namespace {

using retinue::test::StartedProgram;

TEST(OddStart, AProgramThatLostItsFileStartsRanks) {
  const std::filesystem::path folder = RETINUE_BIN_DIR;
  std::filesystem::copy_file(folder / "self_deleting_program", folder / "self_deleting_copy",
                             std::filesystem::copy_options::overwrite_existing);
  StartedProgram program("self_deleting_copy");
  EXPECT_EQ(program.read_all(), "rank 0\nrank 0\nrank 0\n");
  EXPECT_EQ(program.wait_for_all(), 0);
}

TEST(OddStart, StandardDescriptorsMayBeClosed) {
  for (const std::string closed : {"<&-", ">&-", "2>&-", "<&- >&- 2>&-"})
    EXPECT_EQ(std::system((RETINUE_BIN_DIR "/retinue run -n 2 echo hello " + closed + " >/dev/null").c_str()), 0)
        << closed;
  EXPECT_EQ(std::system("exec " RETINUE_BIN_DIR "/retinue run -n 2 sh -c 'exit 0' >&-"), 0);
}

TEST(OddStart, ALowLimitOfDescriptorsIsEnough) {
  EXPECT_EQ(std::system("ulimit -n 32; exec " RETINUE_BIN_DIR "/retinue run -n 40 true"), 0);
  // Its guardian is executed, which passes descriptors on by number.
  EXPECT_EQ(std::system("ulimit -n 32; exec " RETINUE_BIN_DIR "/tests_launch_early_threads_main >/dev/null"), 0);
}

/// Job memory is a file that may be larger than the limit: it is made smaller, or refused by name where it was asked
/// for.
TEST(OddStart, AFileSizeLimitIsRespected) {
  EXPECT_EQ(std::system("ulimit -f 1000000; exec " RETINUE_BIN_DIR "/retinue run -n 2 true"), 0);
  FILE* pipe = popen("ulimit -f 1000; RETINUE_JOB_MEMORY=1G " RETINUE_BIN_DIR "/retinue run true 2>&1", "r");
  char line[512] = {};
  EXPECT_NE(fgets(line, sizeof line, pipe), nullptr);
  EXPECT_NE(std::string(line).find("ulimit -f"), std::string::npos) << line;
  EXPECT_NE(pclose(pipe), 0);
}

TEST(OddStart, GarbledSettingsAreRefusedByName) {
  FILE* pipe = popen("RETINUE_JOB_MEMORY=much " RETINUE_BIN_DIR "/retinue run true 2>&1", "r");
  char line[512] = {};
  EXPECT_NE(fgets(line, sizeof line, pipe), nullptr);
  EXPECT_NE(std::string(line).find("RETINUE_JOB_MEMORY is 'much'"), std::string::npos) << line;
  EXPECT_NE(pclose(pipe), 0);
}

}  // namespace
