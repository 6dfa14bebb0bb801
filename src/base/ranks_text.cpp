#include "base/ranks_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace retinue {

std::string ranks_text(const std::vector<int>& ranks, std::size_t named) {
  if (ranks.size() > named) return ranks_by_ranges(ranks);
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return text;
}

std::string ranges_text(std::vector<int> ranks) {
  std::ranges::sort(ranks);
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last < i + 2) last = i;
    text += text.empty() ? "" : ", ";
    text += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string ranks_by_ranges(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + ranges_text(ranks);
}

std::string ranks_behind(const std::vector<int>& ranks, std::size_t named) {
  return ranks_by_ranges({ranks.begin() + static_cast<std::ptrdiff_t>(std::min(named, ranks.size())), ranks.end()});
}

}  // namespace retinue
