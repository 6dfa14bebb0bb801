#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace retinue {

/// What /proc/PID/stat says of a process, or of one of its threads.
struct ProcessStat {
  char state = '?';  ///< As ps has it: R, S, D, T (stopped), t (held by a debugger), Z, ...
  pid_t parent = 0;
  std::uint64_t flags = 0;               ///< The kernel's PF_...
  std::uint64_t major_faults = 0;        ///< Pages that it had to wait for.
  std::chrono::nanoseconds user_cpu{0};  ///< All its threads', to the tick.
  std::chrono::nanoseconds system_cpu{0};
  std::chrono::nanoseconds children_user_cpu{0};  ///< Of those that it waited for.
  std::chrono::nanoseconds children_system_cpu{0};
  int threads = 0;
  std::uint64_t start = 0;  ///< In ticks since the machine's start.
  std::uint64_t resident_bytes = 0;
  std::pair<std::uint64_t, std::uint64_t> arguments = {};  ///< Where the command line begins and ends in its memory.
  int exit_status = -1;  ///< As wait() gives it, of one that is on its way out; -1: it is not told.

  /// False: it is still the image that it was forked from.
  bool has_executed() const { return (flags & 0x40) == 0; }  // PF_FORKNOEXEC.
  std::chrono::nanoseconds cpu() const { return user_cpu + system_cpu; }
  /// Its threads may go on without the main thread.
  bool has_ended() const { return (state == 'Z' && threads <= 1) || state == 'X'; }
};

/// nullopt for a process that is gone, or where it may not be read.
std::optional<ProcessStat> process_stat(pid_t pid);
std::optional<ProcessStat> own_process_stat();
std::optional<ProcessStat> thread_stat(pid_t pid, pid_t thread);

/// What /proc/PID/status says.
class ProcessStatus {
 public:
  /// Of the calling thread.
  ProcessStatus();
  /// Of a process's main thread.
  explicit ProcessStatus(pid_t pid);

  /// False: the process is gone, or there is no /proc.
  bool is_known() const { return !text_.empty(); }
  /// What follows `name` and its colon; empty where there is no such line.
  std::string_view line(std::string_view name) const;
  /// The numbers in that line, which are of base `base`.
  std::vector<std::uint64_t> numbers(std::string_view name, int base = 10) const;
  /// The first of them; 0 where there is none.
  std::uint64_t number(std::string_view name, int base = 10) const;

 private:
  std::string text_;
};

}  // namespace retinue
