#include "collective/board/domains.h"

#include <algorithm>
#include <map>

namespace retinue {

std::vector<int> Domains::members_of(int leader) const {
  std::vector<int> members;
  for (std::size_t rank = 0; rank < leader_of.size(); ++rank)
    if (leader_of[rank] == leader) members.push_back(static_cast<int>(rank));
  return members;
}

Domains domains_of(std::span<const int> domains) {
  const bool all_are_known = std::find(domains.begin(), domains.end(), kUnknownDomain) == domains.end();
  Domains result;
  std::map<int, int> leaders;
  for (std::size_t rank = 0; rank < domains.size(); ++rank) {
    const auto [found, is_new] = leaders.emplace(all_are_known ? domains[rank] : 0, static_cast<int>(rank));
    result.leader_of.push_back(found->second);
    if (is_new) result.leaders.push_back(found->second);
  }
  return result;
}

}  // namespace retinue
