#pragma once

#include <string>

namespace retinue::test {

/// Whether `part` stands somewhere in `text`.
inline bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace retinue::test
