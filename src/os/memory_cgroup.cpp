#include "os/memory_cgroup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>

#include "os/file_descriptor.h"

namespace retinue {
namespace {

// Version 1 says "no limit" with the largest number of pages.
constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max() >> 2;

void add_with_ancestors(std::string path, const char* root, MemoryCgroup::Version version,
                        std::vector<MemoryCgroup>& cgroups) {
  if (path == "/") path.clear();
  for (;;) {
    cgroups.push_back({root + path, version});
    const auto slash = path.rfind('/');
    if (slash == std::string::npos) return;
    path.resize(slash);
  }
}

}  // namespace

std::vector<MemoryCgroup> memory_cgroups_in(std::string_view proc_cgroup) {
  std::vector<MemoryCgroup> cgroups;
  while (!proc_cgroup.empty()) {
    const std::string_view line = proc_cgroup.substr(0, proc_cgroup.find('\n'));
    proc_cgroup.remove_prefix(std::min(line.size() + 1, proc_cgroup.size()));
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string path(line.substr(second + 1));
    if (controllers.find(",memory,") != std::string::npos) {
      add_with_ancestors(path, "/sys/fs/cgroup/memory", MemoryCgroup::Version::k1, cgroups);
    } else if (controllers == ",,") {
      add_with_ancestors(path, "/sys/fs/cgroup", MemoryCgroup::Version::k2, cgroups);
      add_with_ancestors(path, "/sys/fs/cgroup/unified", MemoryCgroup::Version::k2, cgroups);
    }
  }
  return cgroups;
}

std::vector<MemoryCgroup> own_memory_cgroups() {
  return memory_cgroups_in(read_kernel_file("/proc/self/cgroup"));
}

std::optional<std::size_t> limit_bytes_of(const MemoryCgroup& cgroup) {
  const bool is_old = cgroup.version == MemoryCgroup::Version::k1;
  const auto limit = read_number(cgroup.folder + (is_old ? "/memory.limit_in_bytes" : "/memory.max"));
  return limit && *limit < kNoLimit ? limit : std::nullopt;
}

std::optional<std::size_t> used_bytes_of(const MemoryCgroup& cgroup) {
  const bool is_old = cgroup.version == MemoryCgroup::Version::k1;
  return read_number(cgroup.folder + (is_old ? "/memory.usage_in_bytes" : "/memory.current"));
}

std::optional<std::size_t> read_number(const std::string& path) {
  const std::string text = read_kernel_file(path);
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

std::string read_kernel_file(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  std::string text;
  char piece[8192];
  for (;;) {
    const ssize_t bytes = read(file.get(), piece, sizeof piece);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return text;
    text.append(piece, static_cast<std::size_t>(bytes));
  }
}

std::optional<std::uint64_t> counter_in(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ' ') continue;
    std::uint64_t number = 0;
    const char* const end = line.data() + line.size();
    if (std::from_chars(line.data() + key.size() + 1, end, number).ec == std::errc()) return number;
  }
  return std::nullopt;
}

}  // namespace retinue
