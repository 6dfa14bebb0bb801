#include "os/machine/cgroups.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <sstream>

#include "base/split.h"
#include "os/files/kernel_files.h"

namespace retinue {
namespace {

// Version 1 says "no limit" with the largest number of pages.
constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max() >> 2;

void add_with_ancestors(std::string path, const std::string& root, Cgroup::Version version,
                        std::vector<Cgroup>& cgroups) {
  if (path == "/") path.clear();
  for (;;) {
    cgroups.push_back({root + path, version});
    const auto slash = path.rfind('/');
    if (slash == std::string::npos) return;
    path.resize(slash);
  }
}

std::optional<double> cpus_of(const Cgroup& cgroup) {
  if (cgroup.version == Cgroup::Version::k2) return cpus_of_cpu_max(read_kernel_file(cgroup.folder + "/cpu.max"));
  return cpus_of_cpu_max(first_line_of(cgroup.folder + "/cpu.cfs_quota_us").value_or("") + " " +
                         first_line_of(cgroup.folder + "/cpu.cfs_period_us").value_or(""));
}

}  // namespace

std::vector<Cgroup> cgroups_in(std::string_view proc_cgroup, std::string_view controller) {
  const std::string root = "/sys/fs/cgroup";
  std::vector<Cgroup> cgroups;
  for (const std::string_view line : split(proc_cgroup, '\n')) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string path(line.substr(second + 1));
    if (fmt::format(",{},", controllers).find(fmt::format(",{},", controller)) != std::string::npos) {
      add_with_ancestors(path, fmt::format("{}/{}", root, controller), Cgroup::Version::k1, cgroups);
      if (controllers != controller)  // Mounted together, perhaps without a link of the one's name.
        add_with_ancestors(path, fmt::format("{}/{}", root, controllers), Cgroup::Version::k1, cgroups);
    } else if (controllers.empty()) {
      add_with_ancestors(path, root, Cgroup::Version::k2, cgroups);
      add_with_ancestors(path, root + "/unified", Cgroup::Version::k2, cgroups);
    }
  }
  return cgroups;
}

std::vector<Cgroup> own_cgroups(std::string_view controller) {
  return cgroups_in(read_kernel_file("/proc/self/cgroup"), controller);
}

std::optional<std::size_t> limit_bytes_of(const Cgroup& cgroup) {
  const bool is_old = cgroup.version == Cgroup::Version::k1;
  const auto limit = read_number(cgroup.folder + (is_old ? "/memory.limit_in_bytes" : "/memory.max"));
  return limit && *limit < kNoLimit ? limit : std::nullopt;
}

std::optional<std::size_t> used_bytes_of(const Cgroup& cgroup) {
  const bool is_old = cgroup.version == Cgroup::Version::k1;
  return read_number(cgroup.folder + (is_old ? "/memory.usage_in_bytes" : "/memory.current"));
}

std::optional<double> cpus_of_cpu_max(const std::string& text) {
  std::istringstream words(text);
  double quota = 0;
  double period = 0;
  if (!(words >> quota >> period) || quota < 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<double> cgroup_cpus() {
  std::optional<double> smallest;
  for (const Cgroup& cgroup : own_cgroups("cpu"))
    if (const auto cpus = cpus_of(cgroup)) smallest = std::min(smallest.value_or(*cpus), *cpus);
  return smallest;
}

}  // namespace retinue
