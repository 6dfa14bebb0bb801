#pragma once

#include <vector>

#include "os/cpus.h"
#include "retinue/launch/placement.h"

namespace retinue {

/// The CPUs of each rank, by rank, in increasing order; an empty list means all. `cpus` are those that the caller may
/// use, not empty; `threads_per_rank` 0 means a rank's whole share.
/// Errors: UsageError for lists that don't fit the ranks or name CPUs that are not among `cpus`.
std::vector<std::vector<int>> place_ranks(const std::vector<Cpu>& cpus, int nprocs, const CpuAffinity& affinity,
                                          int threads_per_rank);

}  // namespace retinue
