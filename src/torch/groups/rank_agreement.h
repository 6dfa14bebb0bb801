#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "retinue/torch/process_group.h"

namespace retinue {

/// Numbers of all ranks, by rank.
using RankNumbers = std::vector<std::vector<std::int64_t>>;

/// Tells all ranks a few numbers of each, as many on all ranks, and whether one has a problem.
///
/// Blocking: a small collective; one more if there is a problem. Errors: UsageError on all ranks if `problem` isn't
/// empty on one: it has the text of the first such rank. The group is usable afterwards.
RankNumbers agree(std::string_view call, const ProcessGroup& group, const std::vector<std::int64_t>& numbers,
                  const std::string& problem, const std::source_location& where);

/// The first half of it: only the numbers. Blocking: a small collective.
RankNumbers gather_numbers(const std::vector<std::int64_t>& numbers, const ProcessGroup& group,
                           const std::source_location& where);
/// The second half: rank `root`'s text on all ranks, which know its size. broadcast_object() serves no groups of
/// LibTorch's own backends, and this does.
std::string tell_all(const std::string& text, std::int64_t bytes, int root, const ProcessGroup& group,
                     const std::source_location& where);

}  // namespace retinue
