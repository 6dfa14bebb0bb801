#include "base/ranks_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace retinue {

std::string ranks_text(const std::vector<int>& ranks, std::size_t named) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), named); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  if (ranks.size() > named) text += fmt::format(" and {} more", ranks.size() - named);
  return text;
}

}  // namespace retinue
