// Two jobs of one user at the same time: neither changes the other's results, nor does one's end touch the other.
#include <fmt/format.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>

#include "collective/group_mix.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"
#include "support/ranks.h"
#include "support/started_program.h"

namespace retinue::test {
namespace {

constexpr int kRanks = 4;
constexpr int kSteps = is_sanitized() ? 20 : 100;
constexpr int kEndless = std::numeric_limits<int>::max();

/// Runs random collectives and compares them with the model, until there is a file of the name `stop`. Rank 0 prints a
/// line at each round's end.
void work(RankContext& context, unsigned seed, int rounds, const std::string& stop) {
  testing::TestPartResultArray failures;
  const testing::ScopedFakeTestPartResultReporter reporter(
      testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &failures);
  GroupMix mix(context.world(), seed);
  if (context.rank() == 1) std::printf("rank %d\n", getpid());
  int is_over = 0;
  for (int round = 0; round < rounds && is_over == 0; ++round) {
    mix.run(kSteps);
    if (failures.size() > 0) throw std::logic_error(failures.GetTestPartResult(0).message());
    is_over = std::filesystem::exists(stop) ? 1 : 0;
    mix.world().broadcast(std::span(&is_over, 1), 0);
    if (context.rank() == 0) std::printf("round\n");
  }
}

/// This program as a job: two_jobs job SEED ROUNDS STOP.
int run_job(char** arguments) {
  try {
    spawn<work>({.nprocs = kRanks}, static_cast<unsigned>(std::stoul(arguments[0])), std::stoi(arguments[1]),
                std::string(arguments[2]));
    return 0;
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
    return 3;
  }
}

class TwoJobs : public testing::Test {
 protected:
  StartedProgram start(unsigned seed, int rounds) {
    return StartedProgram("tests_collective_two_jobs_main",
                          {"job", std::to_string(seed), std::to_string(rounds), stop_});
  }
  static void read_rounds(StartedProgram& job, int count) {
    while (count > 0) {
      const std::string line = job.read_line();
      ASSERT_FALSE(line.empty()) << "the job has ended";
      ASSERT_FALSE(line.starts_with("error")) << line << job.read_all();
      if (line == "round\n") --count;
    }
  }
  static pid_t read_rank(StartedProgram& job) {
    int pid = 0;
    for (std::string line = job.read_line(); !line.empty(); line = job.read_line())
      if (std::sscanf(line.c_str(), "rank %d", &pid) == 1) return pid;
    throw std::runtime_error("the job has ended");
  }
  /// Also says that of no job anything is left: it would not end.
  void expect_good_end(StartedProgram& job) const {
    std::ofstream(stop_) << "now";
    const std::string text = job.read_all();
    EXPECT_EQ(job.wait_for_all(), 0) << text;
  }

  ~TwoJobs() override { std::filesystem::remove(stop_); }

  const std::string stop_ = fmt::format("{}/two_jobs_{}", testing::TempDir(), getpid());
};

TEST_F(TwoJobs, HaveTheirOwnResults) {
  StartedProgram longer = start(1, kEndless);
  read_rounds(longer, 1);
  StartedProgram other = start(2, 10);
  const std::string text = other.read_all();
  int status = -1;
  ASSERT_EQ(waitpid(other.pid(), &status, 0), other.pid());
  EXPECT_EQ(status, 0) << text;
  expect_good_end(longer);
}

TEST_F(TwoJobs, OutliveEachOther) {
  StartedProgram longer = start(3, kEndless);
  for (const int rounds : {1, 2, 3}) {
    StartedProgram other = start(4, kEndless);
    read_rounds(other, rounds);
    kill(other.pid(), SIGKILL);
    other.read_all();  // Its ranks have ended too, or are about to.
    read_rounds(longer, 2);
  }
  expect_good_end(longer);
}

TEST_F(TwoJobs, LoseOnlyTheirOwnRanks) {
  StartedProgram longer = start(5, kEndless);
  StartedProgram other = start(6, kEndless);
  const pid_t rank = read_rank(other);
  read_rounds(other, 2);
  kill(rank, SIGKILL);
  const std::string text = other.read_all();
  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
  int status = -1;
  ASSERT_EQ(waitpid(other.pid(), &status, 0), other.pid());
  EXPECT_EQ(WEXITSTATUS(status), 3) << text;
  read_rounds(longer, 2);
  expect_good_end(longer);
}

}  // namespace
}  // namespace retinue::test

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc > 1 && std::string(argv[1]) == "job") {
    const retinue::Runtime runtime(argc, argv);
    return argc == 5 ? retinue::test::run_job(argv + 2) : 2;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
