#pragma once

#include <string_view>

namespace retinue {

/// Writes whole lines to standard error, with one call of write(), so that those of several processes don't mix.
/// Blocking: while standard error takes nothing. What can't be written is lost.
void write_standard_error(std::string_view lines);

}  // namespace retinue
