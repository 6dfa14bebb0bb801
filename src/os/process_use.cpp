#include "os/process_use.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

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
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto name_end = text.rfind(')');  // The name may hold spaces and brackets of its own.
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int number = 3; number < 14; ++number) fields >> skipped;
  std::uint64_t user = 0, system = 0, user_of_children = 0, system_of_children = 0;  // Fields 14 to 17.
  if (!(fields >> user >> system >> user_of_children >> system_of_children)) return {};
  const std::uint64_t tick_ns = 1'000'000'000u / static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK));
  return {(user + user_of_children) * tick_ns, (system + system_of_children) * tick_ns, 0};
}

}  // namespace retinue
