#include "base/site_text.h"

#include <fmt/format.h>

namespace retinue {

std::string site_text(std::string_view file, unsigned line) {
  return line == 0 ? std::string(file) : fmt::format("{}:{}", file, line);
}

}  // namespace retinue
