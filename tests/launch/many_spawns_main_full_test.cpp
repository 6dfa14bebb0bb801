// Ten thousand starts leave nothing: no descriptor, no mapping, no process, no memory, in program and guardian.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "ipc/memory/job_layout.h"
#include "retinue/launch/process.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"

namespace {

void count_up(retinue::RankContext& context, std::uint64_t offset) {
  __atomic_fetch_add(context.memory()->at<std::uint64_t>(offset), 1, __ATOMIC_RELAXED);
}

void fail(retinue::RankContext&) {
  throw std::runtime_error("on purpose");
}

/// What a process holds that could be left behind.
struct Holdings {
  std::size_t descriptors = 0;
  std::size_t mappings = 0;
  std::size_t children = 0;

  static Holdings of(int pid) {
    Holdings holdings;
    for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid)))
      ++holdings.descriptors;
    std::ifstream maps(fmt::format("/proc/{}/maps", pid));
    for (std::string line; std::getline(maps, line);) ++holdings.mappings;
    std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", pid));
    for (int child = 0; children >> child;) ++holdings.children;
    return holdings;
  }

  friend bool operator==(const Holdings&, const Holdings&) = default;
  friend void PrintTo(const Holdings& holdings, std::ostream* stream) {
    *stream << holdings.descriptors << " descriptors, " << holdings.mappings << " mappings, " << holdings.children
            << " children";
  }
};

/// Both processes' heaps grow and split now and then, by a mapping or two; what leaks grows with each start.
constexpr std::size_t kMostNewMappings = 8;

class ManySpawns : public testing::Test {
 protected:
  ManySpawns() : block_(memory().allocate(sizeof(std::uint64_t))) {
    *memory().at<std::uint64_t>(block_.offset) = 0;
    for (int i = 0; i < 50; ++i) start_and_fail();  // Until caches and heaps have their size.
    allocated_ = memory().allocated_bytes();
    program_ = Holdings::of(getpid());
    guardian_ = Holdings::of(guardian_pid());
  }

  static retinue::JobMemory& memory() { return *retinue::Runtime::current().memory(); }
  static int guardian_pid() { return process_slot(memory(), retinue::kGuardianSlot).pid.load(); }

  void start_and_fail() {
    retinue::spawn<count_up>({.nprocs = 1}, block_.offset);
    EXPECT_THROW(retinue::spawn<fail>({.nprocs = 2}), retinue::ProcessRaisedException);
  }

  void expect_nothing_is_left() {
    EXPECT_EQ(memory().allocated_bytes(), allocated_);
    for (const auto& [before, pid] : {std::pair(program_, getpid()), std::pair(guardian_, guardian_pid())}) {
      const Holdings after = Holdings::of(pid);
      EXPECT_EQ(after.descriptors, before.descriptors);
      EXPECT_EQ(after.children, before.children);
      EXPECT_LE(after.mappings, before.mappings + kMostNewMappings);
    }
    EXPECT_TRUE(waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD);
  }

  retinue::BlockHandle block_;
  std::size_t allocated_ = 0;
  Holdings program_;
  Holdings guardian_;
};

TEST_F(ManySpawns, TenThousandLeaveNothing) {
  constexpr std::uint64_t kStarts = 10'000;
  const std::uint64_t before = *memory().at<std::uint64_t>(block_.offset);
  for (std::uint64_t i = 0; i < kStarts; ++i) retinue::spawn<count_up>({.nprocs = 1}, block_.offset);
  EXPECT_EQ(*memory().at<std::uint64_t>(block_.offset), before + kStarts);
  expect_nothing_is_left();
}

TEST_F(ManySpawns, NorDoThoseThatFail) {
  for (int i = 0; i < 500; ++i) start_and_fail();
  expect_nothing_is_left();
}

}  // namespace
