#include "os/process/process_look.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "os/files/kernel_files.h"
#include "os/process/process_stat.h"

namespace retinue {
namespace {

std::string identity_text(pid_t pid, const ProcessStat& stat) {
  return fmt::format("{}-{}", pid, stat.start);
}

}  // namespace

std::string command_of(pid_t pid) {
  std::string words = read_kernel_file(fmt::format("/proc/{}/cmdline", pid));
  while (words.ends_with('\0')) words.pop_back();
  std::ranges::replace(words, '\0', ' ');
  if (!words.empty()) return printable(std::move(words));
  std::string name = read_kernel_file(fmt::format("/proc/{}/comm", pid));
  if (name.ends_with('\n')) name.pop_back();
  return printable(fmt::format("[{}]", name));
}

std::string standstill_of(pid_t pid) {
  const char state = process_stat(pid).value_or(ProcessStat()).state;
  if (state == 'T') return fmt::format("is stopped (SIGSTOP or the like): kill -CONT {} continues it", pid);
  if (state == 't') return "is held by a debugger";
  if (state == 'D') return "is in uninterruptible sleep in the kernel (state D)";
  return "";
}

std::string standstill_clause(pid_t pid) {
  const std::string standstill = standstill_of(pid);
  return standstill.empty() ? "" : ", which " + standstill;
}

std::optional<char> state_of_thread(pid_t pid, pid_t thread) {
  const std::optional<ProcessStat> stat = thread_stat(pid, thread);
  return stat ? std::optional(stat->state) : std::nullopt;
}

std::optional<FileIdentity> executable_of(pid_t pid) {
  struct stat status {};
  if (stat(fmt::format("/proc/{}/exe", pid).c_str(), &status) != 0) return std::nullopt;
  return FileIdentity{status.st_dev, status.st_ino};
}

std::string identity_of_process(pid_t pid) {
  const std::optional<ProcessStat> stat = process_stat(pid);
  return stat && !stat->has_ended() ? identity_text(pid, *stat) : std::string();
}

bool has_process_ended(const std::string& identity) {
  const pid_t pid = std::atoi(identity.c_str());
  if (pid <= 0) return false;
  if (kill(pid, 0) != 0 && errno == ESRCH) return true;
  const std::optional<ProcessStat> stat = process_stat(pid);
  return stat && (stat->has_ended() || identity_text(pid, *stat) != identity);
}

std::string printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

}  // namespace retinue
