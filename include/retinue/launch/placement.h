#pragma once

#include <utility>
#include <vector>

namespace retinue {

/// Which CPUs each rank may run on, from its first instruction.
class CpuAffinity {
 public:
  enum class Kind { kNone, kSpread, kCompact, kLists };

  /// Every rank on all CPUs of the caller.
  CpuAffinity() = default;
  static CpuAffinity none() { return {}; }

  /// Each rank on CPUs of its own, far from the others: the caller's cores are divided evenly among the ranks. A rank
  /// gets its share of them, or `threads_per_rank` CPUs of its share, one on each core first. More ranks than CPUs
  /// share them.
  static CpuAffinity spread() { return CpuAffinity(Kind::kSpread); }

  /// Each rank on CPUs of its own, next to its neighbours': the caller's CPUs in the order of sockets and cores,
  /// hardware threads of a core one after the other, are dealt out from the first on; a rank gets `threads_per_rank` of
  /// them, or its share. More ranks than CPUs share them.
  static CpuAffinity compact() { return CpuAffinity(Kind::kCompact); }

  /// The CPUs of each rank: as many lists as there are ranks.
  static CpuAffinity lists(std::vector<std::vector<int>> cpus_by_rank) {
    CpuAffinity affinity(Kind::kLists);
    affinity.lists_ = std::move(cpus_by_rank);
    return affinity;
  }

  Kind kind() const noexcept { return kind_; }
  const std::vector<std::vector<int>>& lists() const noexcept { return lists_; }

 private:
  explicit CpuAffinity(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::kNone;
  std::vector<std::vector<int>> lists_;
};

}  // namespace retinue
