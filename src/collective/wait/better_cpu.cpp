#include "collective/wait/better_cpu.h"

#include <algorithm>

namespace retinue {

std::optional<int> better_cpu(std::span<const int> cpus, int own, const std::vector<int>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), own) == allowed.end()) return std::nullopt;
  std::vector<int> members(static_cast<std::size_t>(*std::max_element(allowed.begin(), allowed.end())) + 1);
  for (const int cpu : cpus)
    if (cpu >= 0 && static_cast<std::size_t>(cpu) < members.size()) ++members[static_cast<std::size_t>(cpu)];
  const auto members_at = [&members](int cpu) { return members[static_cast<std::size_t>(cpu)]; };
  const int emptiest = *std::min_element(allowed.begin(), allowed.end(),
                                         [&](int one, int other) { return members_at(one) < members_at(other); });
  if (members_at(own) <= members_at(emptiest) + 1) return std::nullopt;
  return emptiest;
}

}  // namespace retinue
