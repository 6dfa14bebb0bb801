#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "os/machine/cgroups.h"

/// Whether a process that died by SIGKILL was killed by the kernel because memory ran out.
namespace retinue {

/// A kill of the kernel's, and what was full.
struct MemoryKill {
  std::uint64_t limit_bytes = 0;  ///< Of the memory cgroup that was full; 0: the machine was.
};

/// A record of the kernel's log that names the process it chose: the cgroup that was full, empty for the machine.
/// nullopt: the record is about something else, another process, or a time before `since_ns` (CLOCK_MONOTONIC).
std::optional<std::string> full_cgroup_in(std::string_view kernel_record, pid_t pid, std::uint64_t since_ns);

/// Compares the kernel's counters of such kills with what they were.
class MemoryKills {
 public:
  /// Kills up to now are no news. Called before explain(). Does nothing where it has been called just now. Cost: some
  /// tens of small files.
  void rebase();

  /// What the kernel says of the kill of `pid`, which lived since `since_ns`. Each kill that it counted explains one
  /// process. nullopt: nothing speaks for the kernel, or it does not let itself be asked.
  std::optional<MemoryKill> explain(pid_t pid, std::uint64_t since_ns);

 private:
  /// A cgroup and how often its limit was met.
  struct Watched {
    Cgroup cgroup;
    std::uint64_t limit_hits = 0;
  };

  void find_cgroups();
  std::uint64_t kills_in_cgroup() const;
  /// The innermost cgroup whose limit was met since rebase().
  MemoryKill full_cgroup() const;

  bool has_cgroups_ = false;  ///< Looked for.
  std::chrono::steady_clock::time_point based_at_{};
  std::vector<Watched> cgroups_;
  std::uint64_t cgroup_kills_ = 0;
  std::optional<std::uint64_t> machine_kills_;
};

}  // namespace retinue
