#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "os/process/process_stat.h"

namespace retinue {

/// What a process does, as the kernel tells it at one moment. Where it forbids something, that is left out.
struct ActivityLook : ProcessStat {
  std::chrono::steady_clock::time_point time;
  std::uint64_t read_bytes = 0;  ///< From files, pipes and sockets.
  std::uint64_t swapped_bytes = 0;
  std::string kernel_function;       ///< In which its main thread waits.
  std::optional<long> system_call;   ///< In which its main thread is, and
  std::uint64_t first_argument = 0;  ///< that one's first argument.
  std::string descriptor;            ///< What the descriptor is that it reads, writes or accepts from.
};

/// None when there is no such process.
std::optional<ActivityLook> look_at_activity(pid_t pid);

/// What process `pid` does at `now`, in words that go on after "rank 1 (pid 5) ", as "sleeps (nanosleep)" or "runs in
/// its own code (99 % of a CPU in the last 0.5 s)". `before`: an earlier look, without which nothing is said of time.
std::string describe_activity(pid_t pid, const std::optional<ActivityLook>& before,
                              const std::optional<ActivityLook>& now);

}  // namespace retinue
