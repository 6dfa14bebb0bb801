#pragma once

#include <span>
#include <vector>

namespace retinue {

/// Members of a group that share their last cache: lines go from one to another within it in a fraction of the time
/// that they take elsewhere.
struct Domains {
  std::vector<int> leader_of;  ///< By rank: the lowest rank of its domain.
  std::vector<int> leaders;    ///< In increasing order.

  bool is_one() const { return leaders.size() < 2; }
  std::vector<int> members_of(int leader) const;
};

constexpr int kUnknownDomain = -1;

/// `domains`: of each member, by rank. Where one isn't known, all are one. Pure.
Domains domains_of(std::span<const int> domains);

}  // namespace retinue
