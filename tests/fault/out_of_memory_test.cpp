// The kernel kills a rank in a full memory cgroup, which needs the right to make one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "os/machine/cgroups.h"
#include "support/started_program.h"

using retinue::Cgroup;
using retinue::test::StartedProgram;

namespace {

constexpr std::size_t kLimitBytes = std::size_t{192} << 20;

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

/// A memory cgroup below this process's, with a limit; gone with the object.
class FullCgroup {
 public:
  FullCgroup() {
    for (const Cgroup& own : retinue::own_cgroups("memory")) {
      folder_ = own.folder + "/retinue_test_" + std::to_string(getpid());
      if (!std::filesystem::exists(own.folder)) continue;
      std::error_code error;
      if (!std::filesystem::create_directory(folder_, error)) {
        problem_ = "making " + folder_ + ": " + error.message();
        return;
      }
      const bool is_old = own.version == Cgroup::Version::k1;
      const std::string limit = folder_ + (is_old ? "/memory.limit_in_bytes" : "/memory.max");
      if (!write_file(limit, std::to_string(kLimitBytes))) problem_ = "writing " + limit;
      // Where there is swap, it must not help.
      if (!is_old) write_file(folder_ + "/memory.swap.max", "0");
      if (is_old) write_file(folder_ + "/memory.memsw.limit_in_bytes", std::to_string(kLimitBytes));
      return;
    }
    problem_ = "no memory cgroup around this process";
  }
  ~FullCgroup() { rmdir(folder_.c_str()); }
  FullCgroup(const FullCgroup&) = delete;
  FullCgroup& operator=(const FullCgroup&) = delete;

  const std::string& folder() const { return folder_; }
  /// Why it could not be made; empty if it was.
  const std::string& problem() const { return problem_; }

 private:
  std::string folder_;
  std::string problem_;
};

void expect_report_of_full_cgroup(const std::string& who) {
  const FullCgroup cgroup;
  if (!cgroup.problem().empty()) GTEST_SKIP() << "no cgroup to fill: " << cgroup.problem();
  StartedProgram program("out_of_memory_program", {cgroup.folder(), who});
  const std::string output = program.read_all();
  EXPECT_EQ(program.wait_for_all(), 0) << output;
  EXPECT_TRUE(output.starts_with("rank 1 out_of_memory 1: ")) << output;
  EXPECT_NE(output.find("was killed by the kernel: out of memory (cgroup limit 192 MiB, this rank's peak "),
            std::string::npos)
      << output;
}

TEST(OutOfMemory, InTheJobsCgroupIsSaid) {
  expect_report_of_full_cgroup("program");
}

TEST(OutOfMemory, InACgroupOfTheRankIsSaid) {
  if (access("/dev/kmsg", R_OK) != 0)
    GTEST_SKIP() << "the kernel's log cannot be read, and nothing else tells of other cgroups: " << strerror(errno);
  expect_report_of_full_cgroup("rank");
}

/// A cgroup kills where an allocation should fail: so job memory looks before it takes more.
TEST(OutOfMemory, JobMemoryIsRefusedBeforeTheCgroupIsFull) {
  const FullCgroup cgroup;
  if (!cgroup.problem().empty()) GTEST_SKIP() << "no cgroup to fill: " << cgroup.problem();
  StartedProgram program("out_of_memory_program", {cgroup.folder(), "shared"});
  const std::string output = program.read_all();
  EXPECT_EQ(program.wait_for_all(), 0) << output;
  EXPECT_TRUE(output.starts_with("refused after ")) << output;
  EXPECT_NE(output.find("machine and memory cgroup have only "), std::string::npos) << output;
  EXPECT_NE(output.find("largest holders: the program (pid " + std::to_string(program.pid()) + ") "), std::string::npos)
      << output;
}

}  // namespace
