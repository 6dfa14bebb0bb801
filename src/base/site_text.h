#pragma once

#include <string>
#include <string_view>

namespace retinue {

/// As "train.cpp:88"; `file` alone where that is the name of a place that has no lines.
std::string site_text(std::string_view file, unsigned line);

}  // namespace retinue
