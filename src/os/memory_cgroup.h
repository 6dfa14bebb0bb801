#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace retinue {

/// A memory cgroup, by the folder where its files should lie.
struct MemoryCgroup {
  enum class Version { k1, k2 };
  std::string folder;
  Version version;
};

/// The memory cgroups around a process, innermost first, from the text of its /proc/PID/cgroup. Version 2 is looked for
/// in both of its usual places, so that some of the folders do not exist.
std::vector<MemoryCgroup> memory_cgroups_in(std::string_view proc_cgroup);
/// Those around this process.
std::vector<MemoryCgroup> own_memory_cgroups();

/// Its limit; nullopt where there is none, or no such cgroup.
std::optional<std::size_t> limit_bytes_of(const MemoryCgroup& cgroup);
std::optional<std::size_t> used_bytes_of(const MemoryCgroup& cgroup);

/// The first number in a file; nullopt if there is none, as in "max".
std::optional<std::size_t> read_number(const std::string& path);

/// All of a small file of the kernel's; empty if it cannot be read.
std::string read_kernel_file(const std::string& path);

/// The number behind `key` in lines of "key number".
std::optional<std::uint64_t> counter_in(std::string_view text, std::string_view key);

}  // namespace retinue
