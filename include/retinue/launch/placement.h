#pragma once

#include <utility>
#include <vector>

namespace retinue {

/// The CPUs that each rank may run on, from its first instruction.
class CpuAffinity {
 public:
  enum class Kind { kNone, kSpread, kCompact, kLists, kNode, kSocket, kExclusive, kCoreComplex };

  /// Places every rank on all CPUs of the caller.
  CpuAffinity() = default;
  static CpuAffinity none() { return {}; }

  /// Places each rank on CPUs of its own, far from the other ranks. The caller's cores are divided evenly among the
  /// ranks. A rank gets its share of them, or `threads_per_rank` CPUs of its share, one on each core first. If there
  /// are more ranks than CPUs, ranks share CPUs.
  static CpuAffinity spread() { return CpuAffinity(Kind::kSpread); }

  /// Places each rank on CPUs of its own, next to its neighbours' CPUs. The caller's CPUs are dealt out from the first
  /// on, in the order of sockets and cores, with the hardware threads of a core one after the other. A rank gets
  /// `threads_per_rank` CPUs, or its share. If there are more ranks than CPUs, ranks share CPUs.
  static CpuAffinity compact() { return CpuAffinity(Kind::kCompact); }

  /// The next four use the machine's memory nodes (NUMA) and deal them out to ranks by rank number: of four ranks on
  /// two nodes, 0 and 1 get the first. They correspond to torchrun's --numa-binding, but need no GPU.
  ///
  /// Places each rank on all of the caller's CPUs of its node.
  static CpuAffinity node() { return CpuAffinity(Kind::kNode); }
  /// Places each rank on all of the caller's CPUs of its node's socket.
  static CpuAffinity socket() { return CpuAffinity(Kind::kSocket); }
  /// Places each rank on cores of its own: a node's cores are divided evenly among its ranks. Refused if a node has
  /// fewer cores than ranks.
  static CpuAffinity exclusive() { return CpuAffinity(Kind::kExclusive); }
  /// Places each rank on cores of its node that share their last-level cache. Each rank gets another group of cores as
  /// long as there are some, large groups first. Refused if the kernel doesn't report which cores share a cache.
  static CpuAffinity core_complex() { return CpuAffinity(Kind::kCoreComplex); }

  /// Places each rank on the CPUs listed for it. There must be as many lists as ranks.
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

/// The CPUs and threads of a rank.
struct RankPlace {
  std::vector<int> cpus;  ///< In increasing order.
  int threads = 1;        ///< The number of threads that its libraries should use by default.
};

/// Returns the places, by rank, of `nprocs` ranks that this process would start now. Errors: UsageError, as spawn().
std::vector<RankPlace> rank_places(const CpuAffinity& affinity, int nprocs, int threads_per_rank = 0);

}  // namespace retinue
