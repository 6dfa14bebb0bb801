#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

namespace retinue {

/// The pieces of `text` between separators; a separator at its end begins no other.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    pieces.push_back(text.substr(0, text.find(separator)));
    text.remove_prefix(std::min(pieces.back().size() + 1, text.size()));
  }
  return pieces;
}

}  // namespace retinue
