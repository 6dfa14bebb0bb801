#pragma once

#include <optional>
#include <span>
#include <vector>

namespace retinue {

/// Where a member that runs on `own` should go, so that the members of a crowd are spread evenly over the CPUs: the
/// emptiest of `allowed`, in increasing order, unless its own has at most one member more, or isn't among them. Pure.
/// `cpus`: the CPUs of all members that run; -1: not known.
std::optional<int> better_cpu(std::span<const int> cpus, int own, const std::vector<int>& allowed);

}  // namespace retinue
