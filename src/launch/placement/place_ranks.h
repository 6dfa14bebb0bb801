#pragma once

#include <optional>
#include <vector>

#include "os/machine/cpus.h"
#include "retinue/launch/placement.h"

namespace retinue {

/// The CPUs of each rank, by rank, in increasing order; an empty list means all. `cpus` are those that the caller may
/// use, not empty; `threads_per_rank` 0 means a rank's whole share.
/// Errors: UsageError for lists that don't fit the ranks or name CPUs that are not among `cpus`.
std::vector<std::vector<int>> place_ranks(const std::vector<Cpu>& cpus, int nprocs, const CpuAffinity& affinity,
                                          int threads_per_rank);

/// Threads that the libraries of each rank should use, so that ranks which share CPUs, or the time that the cgroup
/// leaves them, don't fight for them. `places` are place_ranks()'s, `cpus` how many the caller may use. Who lists CPUs
/// has as many threads as CPUs.
std::vector<int> thread_shares(const std::vector<std::vector<int>>& places, int cpus, CpuAffinity::Kind kind,
                               std::optional<double> cgroup_limit);

/// Both, on this machine, for ranks that may use `allowed`. Errors: UsageError.
std::vector<RankPlace> places_among(const std::vector<int>& allowed, int nprocs, const CpuAffinity& affinity,
                                    int threads_per_rank);

}  // namespace retinue
