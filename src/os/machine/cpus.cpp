#include "os/machine/cpus.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>

#include "base/parse_number.h"
#include "base/split.h"
#include "os/files/kernel_files.h"
#include "os/machine/cgroups.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr int kMostCpus = 1 << 16;
constexpr int kBind = 2;  // MPOL_BIND of linux/mempolicy.h, which does not come with glibc.

/// A set of as many CPUs as needed: cpu_set_t ends at 1,024.
class CpuSet {
 public:
  explicit CpuSet(int cpus)
      : cpus_(cpus), bytes_(CPU_ALLOC_SIZE(static_cast<std::size_t>(cpus))), set_(CPU_ALLOC(cpus), &free_set) {
    if (set_ == nullptr) throw std::bad_alloc();
    CPU_ZERO_S(bytes_, set_.get());
  }
  void add(int cpu) { CPU_SET_S(static_cast<std::size_t>(cpu), bytes_, set_.get()); }
  std::vector<int> numbers() const {
    std::vector<int> numbers;
    for (int cpu = 0; cpu < cpus_; ++cpu)
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes_, set_.get())) numbers.push_back(cpu);
    return numbers;
  }
  std::size_t bytes() const { return bytes_; }
  cpu_set_t* get() const { return set_.get(); }

 private:
  static void free_set(cpu_set_t* set) { CPU_FREE(set); }

  int cpus_;
  std::size_t bytes_;
  std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set_;
};

/// nullopt for what is no number of a CPU or of a node.
std::optional<int> number_of(std::string_view text) {
  const std::optional<int> number = parse_number<int>(text);
  return number.value_or(-1) < 0 ? std::nullopt : number;
}

/// Each CPU's folder has a link to its memory node's.
std::optional<int> node_in(const std::string& cpu_folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(cpu_folder, error)) {
    const std::string name = entry.path().filename();
    const auto node = name.starts_with("node") ? number_of(std::string_view(name).substr(4)) : std::nullopt;
    if (node) return node;
  }
  return std::nullopt;
}

/// The hardware threads that share its last cache, which is the one of the highest level.
std::vector<int> last_cache_in(const std::string& cpu_folder) {
  std::vector<int> cache;
  int highest = -1;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(cpu_folder + "/cache", error)) {
    const std::string folder = entry.path();
    const int level = number_of(first_line_of(folder + "/level").value_or("")).value_or(-1);
    std::vector<int> sharing = parse_cpu_list(first_line_of(folder + "/shared_cpu_list").value_or(""));
    if (level <= highest || sharing.empty() || first_line_of(folder + "/type") == "Instruction") continue;
    highest = level;
    cache = std::move(sharing);
  }
  return cache;
}

}  // namespace

std::vector<int> allowed_cpus() {
  for (int cpus = CPU_SETSIZE; cpus <= kMostCpus; cpus *= 2) {
    const CpuSet set(cpus);
    if (sched_getaffinity(0, set.bytes(), set.get()) == 0) return set.numbers();
    if (errno != EINVAL) break;  // EINVAL: the kernel has more CPUs than that.
  }
  throw SystemError("reading this process's CPU affinity", errno);
}

bool move_to_cpu(int cpu, const std::vector<int>& allowed) noexcept try {
  set_allowed_cpus({cpu});
  set_allowed_cpus(allowed);
  return true;
} catch (const Error&) {
  return false;
}

void set_allowed_cpus(const std::vector<int>& cpus) {
  CpuSet set(std::max(CPU_SETSIZE, cpus.empty() ? 0 : *std::max_element(cpus.begin(), cpus.end()) + 1));
  for (const int cpu : cpus) set.add(cpu);
  if (sched_setaffinity(0, set.bytes(), set.get()) != 0)
    throw SystemError(fmt::format("binding to CPUs {}", cpu_list_text(cpus)), errno);
}

std::vector<Cpu> cpu_topology(const std::vector<int>& cpus, const std::string& folder) {
  std::vector<Cpu> topology;
  for (const int cpu : cpus) {
    const std::string about = fmt::format("{}/cpu{}/topology/", folder, cpu);
    // By its first hardware thread: core_id is unique in a socket only, or in a part of one.
    const std::vector<int> siblings = parse_cpu_list(first_line_of(about + "thread_siblings_list").value_or(""));
    const std::optional<int> package = number_of(first_line_of(about + "physical_package_id").value_or(""));
    topology.push_back({cpu, siblings.empty() ? cpu : siblings.front(), package.value_or(0)});
  }
  return topology;
}

void read_nodes_and_caches(std::vector<Cpu>& topology, const std::string& folder) {
  for (Cpu& cpu : topology) {
    const std::string own = fmt::format("{}/cpu{}", folder, cpu.number);
    cpu.node = node_in(own).value_or(cpu.node);
    if (const auto cache = last_cache_in(own); !cache.empty()) cpu.cache = cache.front();
  }
}

CommonPlace common_place(const std::vector<int>& cpus, const std::string& folder) {
  const auto folder_of = [&](int cpu) { return fmt::format("{}/cpu{}", folder, cpu); };
  if (cpus.empty()) return {};
  CommonPlace place{.cache = std::nullopt, .node = node_in(folder_of(cpus.front()))};
  const std::vector<int> sharing = last_cache_in(folder_of(cpus.front()));
  const auto shares = [&](int cpu) { return std::find(sharing.begin(), sharing.end(), cpu) != sharing.end(); };
  // Who shares a cache shares the node.
  if (!sharing.empty() && std::all_of(cpus.begin(), cpus.end(), shares)) {
    place.cache = sharing.front();
  } else if (!std::all_of(cpus.begin(), cpus.end(), [&](int cpu) { return node_in(folder_of(cpu)) == place.node; })) {
    place.node = std::nullopt;
  }
  return place;
}

int usable_cpus(int allowed, std::optional<double> cgroup_limit) {
  if (!cgroup_limit) return std::max(1, allowed);
  return std::max(1, static_cast<int>(std::min<double>(allowed, std::ceil(*cgroup_limit))));
}

int usable_cpus() {
  return usable_cpus(static_cast<int>(allowed_cpus().size()), cgroup_cpus());
}

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  for (const std::string_view part : split(text, ',')) {
    const auto dash = part.find('-');
    const std::optional<int> first = number_of(part.substr(0, dash));
    const std::optional<int> last = dash == std::string_view::npos ? first : number_of(part.substr(dash + 1));
    if (!first || !last || *last < *first || *last >= kMostCpus) return {};
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::string cpu_list_text(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    text += text.empty() ? "" : ",";
    text += last == i ? fmt::format("{}", cpus[i]) : fmt::format("{}-{}", cpus[i], cpus[last]);
    i = last + 1;
  }
  return text;
}

std::vector<int> allowed_memory_nodes() {
  std::istringstream status(read_kernel_file("/proc/self/status"));
  for (std::string word; status >> word;) {
    if (word != "Mems_allowed_list:" || !(status >> word)) continue;
    std::vector<int> nodes = parse_cpu_list(word);
    if (!nodes.empty()) return nodes;
  }
  return {0};
}

void bind_memory(int node) {
  constexpr int kBits = static_cast<int>(sizeof(unsigned long) * CHAR_BIT);
  std::vector<unsigned long> mask(static_cast<std::size_t>(node / kBits) + 1);
  mask.back() = 1ul << (node % kBits);
  // The kernel takes one bit less than it is told.
  if (syscall(SYS_set_mempolicy, kBind, mask.data(), mask.size() * kBits + 1) != 0)
    throw SystemError(fmt::format("binding memory to node {} (containers may forbid set_mempolicy)", node), errno);
}

}  // namespace retinue
