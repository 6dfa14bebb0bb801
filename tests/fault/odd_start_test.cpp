// Programs that are started, or treated, in unusual ways.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/paths.h"
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

/// Addresses are smaller than RAM, too.
TEST(OddStart, ALimitOfAddressesIsRespected) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's memory takes terabytes of addresses";
#endif
  EXPECT_EQ(std::system("ulimit -v 400000; exec " RETINUE_BIN_DIR "/retinue run -n 2 true"), 0);
  EXPECT_EQ(std::system("ulimit -v 400000; exec " RETINUE_BIN_DIR "/hello_ranks >/dev/null"), 0);
  FILE* pipe = popen("ulimit -v 100000; " RETINUE_BIN_DIR "/retinue run true 2>&1", "r");
  char line[512] = {};
  EXPECT_NE(fgets(line, sizeof line, pipe), nullptr);
  EXPECT_NE(std::string(line).find("job memory of "), std::string::npos) << line;
  EXPECT_NE(std::string(line).find("(ulimit -f, -v)"), std::string::npos) << line;
  EXPECT_EQ(WEXITSTATUS(pclose(pipe)), 2);
}

TEST(OddStart, GarbledSettingsAreRefusedByName) {
  FILE* pipe = popen("RETINUE_JOB_MEMORY=much " RETINUE_BIN_DIR "/retinue run true 2>&1", "r");
  char line[512] = {};
  EXPECT_NE(fgets(line, sizeof line, pipe), nullptr);
  EXPECT_NE(std::string(line).find("RETINUE_JOB_MEMORY is 'much'"), std::string::npos) << line;
  EXPECT_NE(pclose(pipe), 0);
}

/// A program that says "ok" in the end, or what went wrong; nothing of it may be left.
std::string end_of(const std::string& mode, const std::string& fault = "") {
  unsetenv("RETINUE_FAULT");
  if (!fault.empty()) setenv("RETINUE_FAULT", fault.c_str(), 1);
  StartedProgram program("odd_end_program", {mode});
  unsetenv("RETINUE_FAULT");
  const std::string text = program.read_all();
  EXPECT_EQ(program.wait_for_all(), 0) << text;
  return text;
}

TEST(OddEnd, AGuardianWithoutDescriptorsSeesOrphans) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a check of UBSan's makes a pipe, and takes a process out of descriptors for one with an error";
#endif
  EXPECT_EQ(end_of("guardian without descriptors"), "ok\n");
}

TEST(OddEnd, AProgramWithoutDescriptorsSeesOrphansOfADeadGuardian) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a check of UBSan's makes a pipe, and takes a process out of descriptors for one with an error";
#endif
  const std::string text = end_of("program without descriptors");
  EXPECT_NE(text.find("guardian"), std::string::npos) << text;
  EXPECT_EQ(text.find("ulimit"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("\nok\n")) << text;
}

TEST(OddEnd, AContextThatCannotBeginEndsWithTheReason) {
  const std::string text = end_of("refuse", "guardian.begin=throw");
  EXPECT_NE(text.find("RETINUE_FAULT at guardian.begin"), std::string::npos) << text;
}

TEST(OddEnd, ARankThatDoesNotExitIsStoppedAndNamed) {
  const std::string text = end_of("linger");
  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
  EXPECT_NE(text.find("did not exit within its exit_grace (1 s)"), std::string::npos) << text;
}

TEST(OddEnd, ForksOfADeadGuardianAreNotLeftBehind) {
  for (const std::string fault : {"guardian.begin", "guardian.adopt:0", "guardian.adopt:1", "guardian.adopt:2"}) {
    const std::string text = end_of("fork without guardian", fault + "=kill");
    EXPECT_TRUE(text == "started\n" || text.find("guardian") != std::string::npos) << text;
  }
}

TEST(OddEnd, NestedLaddersHaveTheirTimeOneAfterTheOther) {
  EXPECT_EQ(end_of("nest"), "ok\n");
}

TEST(OddEnd, AStandardErrorThatNobodyReadsHoldsUpNobody) {
  EXPECT_EQ(end_of("tell nobody"), "ok\n");
  EXPECT_EQ(end_of("tell nobody", "helper.start=kill"), "ok\n");  // Then the guardian tells.
}

}  // namespace
