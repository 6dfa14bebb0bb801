#pragma once

#include <cstddef>
#include <fstream>
#include <sstream>
#include <string>

namespace retinue::test {

/// The sum of a field of /proc/self/smaps, as "AnonHugePages", in bytes.
inline std::size_t smaps_bytes(const std::string& field) {
  std::ifstream smaps("/proc/self/smaps");
  std::size_t bytes = 0;
  for (std::string line; std::getline(smaps, line);) {
    if (!line.starts_with(field + ":")) continue;
    std::istringstream value(line.substr(field.size() + 1));
    std::size_t kibibytes = 0;
    value >> kibibytes;
    bytes += kibibytes << 10;
  }
  return bytes;
}

}  // namespace retinue::test
