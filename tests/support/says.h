#pragma once

#include <string>

namespace retinue::test {

/// Whether `part` stands somewhere in `text`.
inline bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// How often `word` is in `text`.
inline int count_of(const std::string& text, const std::string& word) {
  int count = 0;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + word.size())) ++count;
  return count;
}

}  // namespace retinue::test
