#include "os/process/process_stat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

#include "os/files/kernel_files.h"
#include "os/machine/memory.h"

namespace retinue {

namespace {

std::optional<ProcessStat> stat_in(const std::string& path) {
  const std::string text = read_kernel_file(path);
  const std::size_t name_end = text.rfind(')');  // The name may hold brackets, blanks and line ends of its own.
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return std::nullopt;
  std::array<std::int64_t, 53> fields{};  // By their numbers in proc(5), behind the state, which is number 3.
  fields[52] = -1;
  const char* at = text.data() + name_end + 3;
  const char* const end = text.data() + text.size();
  for (std::size_t number = 4; number < fields.size() && at < end; ++number)
    at = std::from_chars(at + 1, end, fields[number]).ptr;
  const auto count = [&](std::size_t number) { return static_cast<std::uint64_t>(fields[number]); };
  const auto cpu = [&, tick_ns = 1'000'000'000 / sysconf(_SC_CLK_TCK)](std::size_t number) {
    return std::chrono::nanoseconds(fields[number] * tick_ns);
  };
  return ProcessStat{.state = text[name_end + 2],
                     .parent = static_cast<pid_t>(fields[4]),
                     .flags = count(9),
                     .major_faults = count(12),
                     .user_cpu = cpu(14),
                     .system_cpu = cpu(15),
                     .children_user_cpu = cpu(16),
                     .children_system_cpu = cpu(17),
                     .threads = static_cast<int>(fields[20]),
                     .start = count(22),
                     .resident_bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(fields[24], 0)) * page_bytes(),
                     .arguments = {count(48), count(49)},
                     .exit_status = static_cast<int>(fields[52])};
}

}  // namespace

std::optional<ProcessStat> process_stat(pid_t pid) {
  return stat_in(fmt::format("/proc/{}/stat", pid));
}
std::optional<ProcessStat> own_process_stat() {
  return stat_in("/proc/self/stat");
}
std::optional<ProcessStat> thread_stat(pid_t pid, pid_t thread) {
  return stat_in(fmt::format("/proc/{}/task/{}/stat", pid, thread));
}

ProcessStatus::ProcessStatus() : text_(read_kernel_file("/proc/thread-self/status")) {}
ProcessStatus::ProcessStatus(pid_t pid) : text_(read_kernel_file(fmt::format("/proc/{}/status", pid))) {}

std::string_view ProcessStatus::line(std::string_view name) const {
  const std::string head = std::string("\n").append(name).append(":");
  const std::size_t at = text_.find(head);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + head.size();
  return std::string_view(text_).substr(begin, text_.find('\n', begin) - begin);
}

std::vector<std::uint64_t> ProcessStatus::numbers(std::string_view name, int base) const {
  std::vector<std::uint64_t> numbers;
  const std::string_view text = line(name);
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at != end;) {
    std::uint64_t number = 0;
    const auto [after, error] = std::from_chars(at, end, number, base);
    if (error == std::errc()) numbers.push_back(number);
    at = error == std::errc() ? after : at + 1;
  }
  return numbers;
}

std::uint64_t ProcessStatus::number(std::string_view name, int base) const {
  const auto found = numbers(name, base);
  return found.empty() ? 0 : found.front();
}

}  // namespace retinue
