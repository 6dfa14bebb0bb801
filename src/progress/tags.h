#pragma once

#include <string_view>

namespace retinue {

/// Errors: UsageError, which names the call, for a tag that is empty, has control characters, or isn't UTF-8.
void check_tag(std::string_view call, std::string_view tag);

/// Errors: UsageError, which names the call, where it isn't UTF-8: TensorBoard would refuse the whole file.
void check_utf8(std::string_view call, std::string_view text);

}  // namespace retinue
