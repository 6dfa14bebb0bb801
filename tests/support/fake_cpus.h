#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace retinue::test {

/// A folder as /sys/devices/system/cpu of a machine that isn't there.
class FakeCpus {
 public:
  explicit FakeCpus(const std::string& name)
      : folder_(std::filesystem::temp_directory_path() / fmt::format("retinue-{}-{}", name, getpid())) {}
  ~FakeCpus() { std::filesystem::remove_all(folder_); }
  FakeCpus(const FakeCpus&) = delete;
  FakeCpus& operator=(const FakeCpus&) = delete;

  std::string folder() const { return folder_; }

  void add_core(int cpu, const std::string& siblings, int package) const {
    write(cpu, "topology/thread_siblings_list", siblings);
    write(cpu, "topology/physical_package_id", std::to_string(package));
  }
  void add_node(int cpu, int node) const { std::filesystem::create_directories(of(cpu) / fmt::format("node{}", node)); }
  void add_cache(int cpu, int index, int level, const std::string& type, const std::string& shared) const {
    write(cpu, fmt::format("cache/index{}/level", index), std::to_string(level));
    write(cpu, fmt::format("cache/index{}/type", index), type);
    write(cpu, fmt::format("cache/index{}/shared_cpu_list", index), shared);
  }

 private:
  std::filesystem::path of(int cpu) const { return folder_ / fmt::format("cpu{}", cpu); }
  void write(int cpu, const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((of(cpu) / file).parent_path());
    std::ofstream(of(cpu) / file) << text << "\n";
  }

  std::filesystem::path folder_;
};

/// Four memory nodes of eight cores each, which share a cache of level 3; every core has caches of its own.
class FourNodes : public FakeCpus {
 public:
  static constexpr int kCpus = 32;

  FourNodes() : FakeCpus("four-nodes") {
    for (int cpu = 0; cpu < kCpus; ++cpu) {
      const std::string own = std::to_string(cpu);
      const int first = cpu / 8 * 8;
      add_core(cpu, own, cpu / 16);
      add_node(cpu, cpu / 8);
      add_cache(cpu, 0, 1, "Data", own);
      add_cache(cpu, 1, 1, "Instruction", own);
      add_cache(cpu, 2, 2, "Unified", own);
      add_cache(cpu, 3, 3, "Unified", fmt::format("{}-{}", first, first + 7));
    }
  }
};

}  // namespace retinue::test
