#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <string>

#include "retinue/collective/communicator.h"
#include "support/captured_stderr.h"
#include "support/fork_shared.h"
#include "support/wait_until.h"

/// Ranks 0 and 1 wait for rank 2, which is late in some way until rank 3, who waits for nobody, has seen what is said
/// of that and lets it go on.
namespace retinue::test {

constexpr int kLateRanks = 4;
constexpr int kLateRank = 2;
constexpr int kController = 3;
constexpr auto kLateAfter = std::chrono::milliseconds(1100);

enum class Lateness : int { kStopped, kSleeping, kReading, kLooping };

/// What the scene's processes share; made before any of them.
struct LateScene {
  struct Shared {
    std::atomic<pid_t> late_pid;
    std::atomic<bool> goes_on;
    std::atomic<int> timed_out;
  };

  LateScene() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw SystemError("pipe for a late rank", errno);
    read_end = FileDescriptor(ends[0]);
    write_end = FileDescriptor(ends[1]);
  }

  CapturedStderr captured;
  ForkShared<Shared> shared;
  FileDescriptor read_end;
  FileDescriptor write_end;
};

[[gnu::noinline]] inline void be_late(const LateScene& scene, Lateness lateness) {
  scene.shared->late_pid = getpid();
  char byte = 0;
  const timespec hour{.tv_sec = 3600, .tv_nsec = 0};
  switch (lateness) {
    case Lateness::kStopped:
      raise(SIGSTOP);
      break;
    case Lateness::kSleeping:
      signal(SIGUSR1, [](int) {});
      EXPECT_NE(nanosleep(&hour, nullptr), 0);
      break;
    case Lateness::kReading:
      EXPECT_EQ(read(scene.read_end.get(), &byte, 1), 1);
      break;
    case Lateness::kLooping:
      while (!scene.shared->goes_on.load(std::memory_order_relaxed)) continue;
      break;
  }
  asm volatile("");  // No tail call: the frame must stay.
}

inline void let_go_on(const LateScene& scene, Lateness lateness) {
  switch (lateness) {
    case Lateness::kStopped:
      kill(scene.shared->late_pid, SIGCONT);
      break;
    case Lateness::kSleeping:
      kill(scene.shared->late_pid, SIGUSR1);
      break;
    case Lateness::kReading:
      EXPECT_EQ(write(scene.write_end.get(), "", 1), 1);
      break;
    case Lateness::kLooping:
      scene.shared->goes_on = true;
      break;
  }
}

/// As rank `world.rank` of kLateRanks. `seen`: when the controller has seen enough.
inline void play_late(const LateScene& scene, const JobGroup& world, Lateness lateness,
                      const std::function<bool(const std::string& text)>& seen) {
  if (world.rank == kController) {
    EXPECT_TRUE(wait_until([&] { return seen(scene.captured.text()); })) << scene.captured.text();
    return let_go_on(scene, lateness);
  }
  JobGroup group = world;
  group.name = "waiting";
  group.process_slots.pop_back();
  Communicator communicator(group, {.late_after = kLateAfter});
  for (int i = 0; i < 3; ++i) communicator.barrier();
  if (group.rank == kLateRank) be_late(scene, lateness);
  communicator.barrier();
}

/// What is said of a rank that is late in that way.
inline std::string words_for(Lateness lateness, pid_t pid) {
  switch (lateness) {
    case Lateness::kStopped:
      return fmt::format("it is stopped (SIGSTOP or the like): kill -CONT {} continues it", pid);
    case Lateness::kSleeping:
      return "it sleeps (nanosleep)";
    case Lateness::kReading:
      return "it is blocked reading (read of descriptor ";
    case Lateness::kLooping:
      return "it runs";
  }
  return "";
}

}  // namespace retinue::test
