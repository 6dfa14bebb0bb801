#pragma once

#include <optional>
#include <string>
#include <vector>

/// What of this machine the job may use.
namespace retinue {

/// A cgroup's folder: this process's own or one above it.
struct CgroupFolder {
  std::string path;
  int version = 2;
};

/// Those that may limit this process, from its own upwards. `controller` as in "cpu".
std::vector<CgroupFolder> cgroup_folders(const std::string& controller);

/// The first line of a file without its end; none if it cannot be read.
std::optional<std::string> first_line_of(const std::string& path);

/// CPUs' worth of time that a "max 100000" or "150000 100000" allows; none: no limit, or nothing that makes sense.
std::optional<double> cpus_of_cpu_max(const std::string& text);

/// The smallest limit of this process's cgroups, in CPUs.
std::optional<double> cgroup_cpus();

/// CPUs that this process may run on.
int affinity_cpus();

/// CPUs that count: the affinity's, or the cgroup's limit, rounded up, if that is smaller.
int usable_cpus();
int usable_cpus(int affinity, std::optional<double> limit);

/// GPUs as CUDA programs see them: the entries of CUDA_VISIBLE_DEVICES where it is set, else the number of each
/// /dev/nvidia<n>.
std::vector<std::string> visible_gpus();

/// What -n says: a number, `cpu`, `gpu`, or `auto`: the GPUs if there are any, else the CPUs. Errors: UsageError.
int rank_count_of(const std::string& text, int cpus, const std::vector<std::string>& gpus);

}  // namespace retinue
