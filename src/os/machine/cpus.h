#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Which CPUs and memory nodes this process may use, and how the machine's CPUs belong together.
namespace retinue {

/// One hardware thread.
struct Cpu {
  int number = 0;
  int core = 0;     ///< The same for hardware threads of one core, different for all others of the machine.
  int package = 0;  ///< Socket.
  int node = 0;     ///< Memory node; see read_nodes_and_caches().
  int cache =
      kNoCache;  ///< The first hardware thread of those that share its last cache; kNoCache: the kernel hides it.

  static constexpr int kNoCache = -1;

  friend bool operator==(const Cpu&, const Cpu&) = default;
};

/// CPUs that this process may run on, in increasing order. Errors: SystemError.
std::vector<int> allowed_cpus();
/// Errors: SystemError, which names the CPUs.
void set_allowed_cpus(const std::vector<int>& cpus);

/// Has the calling thread go to `cpu`, one of `allowed`, which are all that it may run on, and stay there until the
/// kernel moves it. Returns whether it went.
bool move_to_cpu(int cpu, const std::vector<int>& allowed) noexcept;

/// CPUs that count: those that it may run on, or the time that its cgroups leave it, rounded up, if that is less.
/// Errors: SystemError.
int usable_cpus();
int usable_cpus(int allowed, std::optional<double> cgroup_limit);

/// How `cpus` belong together, as the folder says, which has the form of /sys/devices/system/cpu. What it does not say
/// (containers may hide it) counts as a core of its own in socket 0.
std::vector<Cpu> cpu_topology(const std::vector<int>& cpus, const std::string& folder = "/sys/devices/system/cpu");

/// Adds each CPU's memory node and last cache, from the same folder. What it does not say stays as it is.
void read_nodes_and_caches(std::vector<Cpu>& topology, const std::string& folder = "/sys/devices/system/cpu");

/// What `cpus` have in common, as the same folder says: their last cache, by the first hardware thread that shares it,
/// and their memory node.
struct CommonPlace {
  std::optional<int> cache;
  std::optional<int> node;
};
CommonPlace common_place(const std::vector<int>& cpus, const std::string& folder = "/sys/devices/system/cpu");

/// "0-3,8" as the kernel writes it; empty when it is no such list.
std::vector<int> parse_cpu_list(std::string_view text);
/// The same the other way round; `cpus` is in increasing order.
std::string cpu_list_text(const std::vector<int>& cpus);

/// Memory nodes that this process may use; {0} where the kernel knows none.
std::vector<int> allowed_memory_nodes();
/// Makes all further pages of this process, and of what it executes, come from `node`. Errors: SystemError.
void bind_memory(int node);

}  // namespace retinue
