#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace retinue {

/// How many ranks a text names, as who reads it can do with no more.
inline constexpr std::size_t kNamedRanks = 16;

/// As "rank 3", "ranks 0, 1 and 2" or "ranks 0, 1 and 7 more", where `named` is 2.
std::string ranks_text(const std::vector<int>& ranks, std::size_t named = kNamedRanks);

}  // namespace retinue
