#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace retinue {

/// The fields of /proc/PID/stat that follow the process's name: the first one, its state, is field 3 in proc(5). Empty
/// for a process that is gone.
std::vector<std::string> process_stat(pid_t pid);

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
