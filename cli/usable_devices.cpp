#include "usable_devices.h"

#include <dirent.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>

#include "base/parse_number.h"
#include "retinue/base/error.h"
#include "text_lists.h"

namespace retinue {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

bool is_plain_count(std::string_view text) {
  return is_number(text);
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
          "--nproc-per-node gpu: no GPU is visible on this machine: there is no /dev/nvidia0, or CUDA_VISIBLE_DEVICES "
          "hides all GPUs; give a number, cpu or auto");
    return gpu_count;
  }
  if (text == "xpu") throw UsageError("--nproc-per-node xpu: Retinue cannot count XPUs; give a number");
  const std::optional<int> count = parse_number<int>(text);
  if (!count || *count < 1)
    throw UsageError(
        fmt::format("--nproc-per-node: '{}' is not a number of processes; give 1, 2, ..., auto, cpu or gpu", text));
  return *count;
}

}  // namespace retinue
