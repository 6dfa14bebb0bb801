#include "os/process/process_identity.h"

#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "os/files/kernel_files.h"

namespace retinue {
namespace {

struct ProcessStat {
  std::string state = {};
  int threads = 0;
  std::string start = {};

  /// Its threads may go on without the main thread.
  bool has_ended() const { return (state == "Z" && threads <= 1) || state == "X"; }
};

/// nullopt where it can't be read.
std::optional<ProcessStat> stat_of(pid_t pid) {
  const std::string text = read_kernel_file(fmt::format("/proc/{}/stat", pid));
  // Behind the name, which may hold anything.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  ProcessStat stat;
  std::string skipped;
  fields >> stat.state;  // Fields 3, 20 and 22.
  for (int number = 4; number < 20; ++number) fields >> skipped;
  fields >> stat.threads >> skipped >> stat.start;
  return fields ? std::optional(stat) : std::nullopt;
}

std::string identity_text(pid_t pid, const ProcessStat& stat) {
  return fmt::format("{}-{}", pid, stat.start);
}

}  // namespace

std::string identity_of_process(pid_t pid) {
  const std::optional<ProcessStat> stat = stat_of(pid);
  return stat && !stat->has_ended() ? identity_text(pid, *stat) : std::string();
}

bool has_process_ended(const std::string& identity) {
  const pid_t pid = std::atoi(identity.c_str());
  if (pid <= 0) return false;
  if (kill(pid, 0) != 0 && errno == ESRCH) return true;
  const std::optional<ProcessStat> stat = stat_of(pid);
  return stat && (stat->has_ended() || identity_text(pid, *stat) != identity);
}

}  // namespace retinue
