#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace retinue {

/// The last `count` lines of a file as a console may show them: of a line that was drawn again and again, as a progress
/// bar is, the last state; control characters as dots. Empty lines are left out. Nothing when `path` is empty or is no
/// file that can be read. Looks at the last 64 KiB only.
std::vector<std::string> last_lines(const std::string& path, std::size_t count);

}  // namespace retinue
