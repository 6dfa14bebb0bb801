#include "os/process/process_use.h"

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
  const ProcessStat stat = process_stat(pid).value_or(ProcessStat());
  return {static_cast<std::uint64_t>((stat.user_cpu + stat.children_user_cpu).count()),
          static_cast<std::uint64_t>((stat.system_cpu + stat.children_system_cpu).count()), 0};
}

}  // namespace retinue
