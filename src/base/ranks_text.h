#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace retinue {

/// How many ranks a text names one by one, as who reads it can do with no more.
inline constexpr std::size_t kNamedRanks = 16;

/// As "rank 3" or "ranks 0, 1 and 2"; of more than `named` as "ranks 0, 2-7". Names all, however many.
std::string ranks_text(const std::vector<int>& ranks, std::size_t named = kNamedRanks);

/// As "0, 2-7": in increasing order, runs of three or more as a range.
std::string ranges_text(std::vector<int> ranks);
/// As "rank 3" or "ranks 0, 2-7".
std::string ranks_by_ranges(const std::vector<int>& ranks);
/// The same of those behind the first `named`, which the text has named already.
std::string ranks_behind(const std::vector<int>& ranks, std::size_t named);

}  // namespace retinue
