#include "os/process/process_use.h"

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "os/process/process_stat.h"

namespace retinue {
namespace {

std::uint64_t nanoseconds_of(const timeval& time) {
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(time.tv_usec) * 1'000u;
}

}  // namespace

ProcessUse use_of(const rusage& usage) {
  return {nanoseconds_of(usage.ru_utime), nanoseconds_of(usage.ru_stime),
          static_cast<std::uint64_t>(usage.ru_maxrss) * 1024u};
}

ProcessUse use_of_zombie(pid_t pid) {
  constexpr std::size_t kUserTime = 14 - 3;  // Then system time, and the same two of its children.
  const std::vector<std::string> fields = process_stat(pid);
  if (fields.size() < kUserTime + 4) return {};
  const auto ticks = [&](std::size_t field) { return std::strtoull(fields[kUserTime + field].c_str(), nullptr, 10); };
  const std::uint64_t tick_ns = 1'000'000'000u / static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK));
  return {(ticks(0) + ticks(2)) * tick_ns, (ticks(1) + ticks(3)) * tick_ns, 0};
}

}  // namespace retinue
