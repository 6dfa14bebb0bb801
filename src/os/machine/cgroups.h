#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The cgroups around this process, and what they allow.
namespace retinue {

/// A cgroup that a controller looks after, by the folder where its files should lie.
struct Cgroup {
  enum class Version { k1, k2 };
  std::string folder;
  Version version;
};

/// The cgroups around a process that `controller`, as "memory", may limit, innermost first, from the text of its
/// /proc/PID/cgroup. They are looked for in all of their usual places, so that some of the folders do not exist.
std::vector<Cgroup> cgroups_in(std::string_view proc_cgroup, std::string_view controller);
/// Those around this process.
std::vector<Cgroup> own_cgroups(std::string_view controller);

/// A memory cgroup's limit; nullopt where there is none, or no such cgroup.
std::optional<std::size_t> limit_bytes_of(const Cgroup& cgroup);
std::optional<std::size_t> used_bytes_of(const Cgroup& cgroup);

/// CPUs' worth of time that a "max 100000" or "150000 100000" allows; nullopt: no limit, or nothing that makes sense.
std::optional<double> cpus_of_cpu_max(const std::string& text);
/// The smallest limit of this process's cgroups, in CPUs.
std::optional<double> cgroup_cpus();

}  // namespace retinue
