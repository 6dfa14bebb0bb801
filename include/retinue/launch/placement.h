#pragma once

#include <utility>
#include <vector>

namespace retinue {

/// Which CPUs each rank may run on, from its first instruction.
class CpuAffinity {
 public:
  enum class Kind { kNone, kSpread, kCompact, kLists, kNode, kSocket, kExclusive, kCoreComplex };

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

  /// The next four know the machine's memory nodes (NUMA), which they deal out to ranks by their numbers: of four ranks
  /// on two nodes, 0 and 1 get the first. They are what torchrun's --numa-binding says, but need no GPU.
  ///
  /// Each rank on all of the caller's CPUs of its node.
  static CpuAffinity node() { return CpuAffinity(Kind::kNode); }
  /// Each rank on all of the caller's CPUs of its node's socket.
  static CpuAffinity socket() { return CpuAffinity(Kind::kSocket); }
  /// Each rank on cores of its own: those of a node are divided evenly among its ranks. Refused where a node has fewer.
  static CpuAffinity exclusive() { return CpuAffinity(Kind::kExclusive); }
  /// Each rank on cores of its node that share their last cache, another group for each rank as long as there are some,
  /// large ones first. Refused where the kernel does not say which cores share one.
  static CpuAffinity core_complex() { return CpuAffinity(Kind::kCoreComplex); }

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

/// Where a rank is put.
struct RankPlace {
  std::vector<int> cpus;  ///< In increasing order.
  int threads = 1;        ///< That its libraries should use, if nothing else is said.
};

/// Where `nprocs` ranks are put that this process starts now, by rank. Errors: UsageError, as spawn().
std::vector<RankPlace> rank_places(const CpuAffinity& affinity, int nprocs, int threads_per_rank = 0);

}  // namespace retinue
