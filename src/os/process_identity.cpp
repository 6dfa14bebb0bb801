#include "os/process_identity.h"

#include <fmt/format.h>

#include <sstream>

#include "os/kernel_files.h"

namespace retinue {

std::string identity_of_process(pid_t pid) {
  const std::string stat = read_kernel_file(fmt::format("/proc/{}/stat", pid));
  // Behind the name, which may hold anything.
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(stat.substr(name_end + 1));
  constexpr int kStart = 22;
  constexpr int kState = 3;
  std::string field;
  for (int i = kState; i <= kStart && fields >> field; ++i)
    if (i == kState && (field == "Z" || field == "X")) return {};
  return fields ? fmt::format("{}-{}", pid, field) : std::string();
}

}  // namespace retinue
