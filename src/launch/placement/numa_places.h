#pragma once

#include <vector>

#include "os/machine/cpus.h"
#include "retinue/launch/placement.h"

namespace retinue {

/// Whether numa_places() knows the kind.
bool is_by_node(CpuAffinity::Kind kind);

/// As place_ranks(), for the kinds that go by memory nodes. Nodes without any
/// of `cpus` don't count. Errors: UsageError where there are too few cores, or no caches are known.
std::vector<std::vector<int>> numa_places(const std::vector<Cpu>& cpus, int nprocs, CpuAffinity::Kind kind);

}  // namespace retinue
