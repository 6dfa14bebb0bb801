#include "usable_devices.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>

#include "retinue/base/error.h"
#include "text_lists.h"

namespace retinue {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::optional<double> cpus_of_folder(const CgroupFolder& folder) {
  if (folder.version == 2) {
    const auto text = first_line_of(folder.path + "/cpu.max");
    return text ? cpus_of_cpu_max(*text) : std::nullopt;
  }
  const auto quota = first_line_of(folder.path + "/cpu.cfs_quota_us");
  const auto period = first_line_of(folder.path + "/cpu.cfs_period_us");
  return quota && period ? cpus_of_cpu_max(*quota + " " + *period) : std::nullopt;
}

}  // namespace

std::vector<CgroupFolder> cgroup_folders(const std::string& controller) {
  std::vector<CgroupFolder> folders;
  std::ifstream cgroups("/proc/self/cgroup");
  for (std::string line; std::getline(cgroups, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_version1 = ("," + controllers + ",").find("," + controller + ",") != std::string::npos;
    if (!is_version1 && !controllers.empty()) continue;
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    for (;;) {
      if (is_version1) {
        folders.push_back({fmt::format("/sys/fs/cgroup/{}{}", controllers, path), 1});
        if (controllers != controller) folders.push_back({fmt::format("/sys/fs/cgroup/{}{}", controller, path), 1});
      } else {
        folders.push_back({"/sys/fs/cgroup" + path, 2});
        folders.push_back({"/sys/fs/cgroup/unified" + path, 2});
      }
      const auto slash = path.rfind('/');
      if (path.empty() || slash == std::string::npos) break;
      path.resize(slash);
    }
  }
  return folders;
}

std::optional<std::string> first_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<double> cpus_of_cpu_max(const std::string& text) {
  std::istringstream words(text);
  std::string quota;
  double period = 0;
  if (!(words >> quota >> period) || !is_number(quota) || period <= 0) return std::nullopt;
  return std::strtod(quota.c_str(), nullptr) / period;
}

std::optional<double> cgroup_cpus() {
  std::optional<double> smallest;
  for (const CgroupFolder& folder : cgroup_folders("cpu"))
    if (const auto cpus = cpus_of_folder(folder)) smallest = std::min(smallest.value_or(*cpus), *cpus);
  return smallest;
}

int affinity_cpus() {
  // The kernel's mask may be longer than cpu_set_t: asked with more room until it fits.
  for (int cpus = CPU_SETSIZE; cpus <= (1 << 20); cpus *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(cpus), [](cpu_set_t* s) { CPU_FREE(s); });
    const std::size_t bytes = CPU_ALLOC_SIZE(cpus);
    if (sched_getaffinity(0, bytes, set.get()) == 0) return CPU_COUNT_S(bytes, set.get());
  }
  return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

int usable_cpus(int affinity, std::optional<double> limit) {
  if (!limit) return std::max(1, affinity);
  return std::max(1, static_cast<int>(std::min<double>(affinity, std::ceil(*limit))));
}

int usable_cpus() {
  return usable_cpus(affinity_cpus(), cgroup_cpus());
}

std::vector<std::string> visible_gpus() {
  if (const char* named = std::getenv("CUDA_VISIBLE_DEVICES")) {
    std::vector<std::string> devices = split_at_commas(named);
    // CUDA itself stops at the first invalid entry: "-1" hides all that follow.
    devices.erase(std::ranges::find(devices, "-1"), devices.end());
    return devices;
  }
  std::vector<int> numbers;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/dev"), closedir);
  while (const dirent* entry = folder ? readdir(folder.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    if (name.starts_with("nvidia") && is_number(name.substr(6))) numbers.push_back(std::atoi(entry->d_name + 6));
  }
  std::ranges::sort(numbers);
  std::vector<std::string> devices;
  for (const int number : numbers) devices.push_back(std::to_string(number));
  return devices;
}

int rank_count_of(const std::string& text, int cpus, const std::vector<std::string>& gpus) {
  const int gpu_count = static_cast<int>(gpus.size());
  if (text == "cpu") return cpus;
  if (text == "auto") return gpu_count > 0 ? gpu_count : cpus;
  if (text == "gpu") {
    if (gpu_count == 0)
      throw UsageError(
          "--nproc-per-node gpu: this machine shows no GPU: there is no /dev/nvidia0, or CUDA_VISIBLE_DEVICES hides "
          "them all; give a number, cpu or auto");
    return gpu_count;
  }
  if (text == "xpu") throw UsageError("--nproc-per-node xpu: Retinue cannot count such devices; give their number");
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || count < 1)
    throw UsageError(
        fmt::format("--nproc-per-node: '{}' is no number of processes; give 1, 2, ... or auto, cpu, gpu", text));
  return count;
}

}  // namespace retinue
