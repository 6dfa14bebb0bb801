#include "os/process/process_look.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "os/files/kernel_files.h"
#include "os/machine/memory.h"

namespace retinue {
namespace {

/// The fields of a stat file from the third on, the state; empty when it cannot be read.
std::istringstream fields_from_state(const std::string& path) {
  const std::string text = read_kernel_file(path);
  const auto name_end = text.rfind(')');  // The name may hold spaces and brackets of its own.
  return std::istringstream(name_end == std::string::npos ? "" : text.substr(name_end + 1));
}

std::string command_of(pid_t pid) {
  std::string words = read_kernel_file(fmt::format("/proc/{}/cmdline", pid));
  while (words.ends_with('\0')) words.pop_back();
  std::ranges::replace(words, '\0', ' ');
  if (!words.empty()) return printable(std::move(words));
  std::string name = read_kernel_file(fmt::format("/proc/{}/comm", pid));
  if (name.ends_with('\n')) name.pop_back();
  return printable(fmt::format("[{}]", name));
}

}  // namespace

std::optional<ProcessLook> look_at_process(pid_t pid) {
  std::istringstream fields = fields_from_state(fmt::format("/proc/{}/stat", pid));
  ProcessLook look;
  std::string skipped;
  if (!(fields >> look.state)) return std::nullopt;
  for (int number = 4; number < 9; ++number) fields >> skipped;
  unsigned long flags = 0;  // Field 9.
  fields >> flags;
  constexpr unsigned long kForkedOnly = 0x40;  // The kernel's PF_FORKNOEXEC.
  look.has_executed = (flags & kForkedOnly) == 0;
  for (int number = 10; number < 14; ++number) fields >> skipped;
  std::int64_t user = 0, system = 0, pages = 0;  // Fields 14, 15 and 24.
  fields >> user >> system;
  for (int number = 16; number < 24; ++number) fields >> skipped;
  fields >> pages;
  look.cpu = std::chrono::nanoseconds((user + system) * (1'000'000'000 / sysconf(_SC_CLK_TCK)));
  look.resident_bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(pages, 0)) * page_bytes();
  look.command = command_of(pid);
  return look;
}

std::string standstill_of(pid_t pid) {
  std::istringstream fields = fields_from_state(fmt::format("/proc/{}/stat", pid));
  char state = 0;
  fields >> state;
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
  std::istringstream fields = fields_from_state(fmt::format("/proc/{}/task/{}/stat", pid, thread));
  char state = 0;
  return fields >> state ? std::optional(state) : std::nullopt;
}

std::optional<FileIdentity> executable_of(pid_t pid) {
  struct stat status {};
  if (stat(fmt::format("/proc/{}/exe", pid).c_str(), &status) != 0) return std::nullopt;
  return FileIdentity{status.st_dev, status.st_ino};
}

std::string printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

}  // namespace retinue
