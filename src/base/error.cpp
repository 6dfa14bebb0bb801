#include "retinue/base/error.h"

#include <fmt/format.h>

#include <cstring>

namespace retinue {

namespace detail {

const char RETINUE_GLIBCXX_DEBUG = 1;
const char RETINUE_CXX11_ABI = 1;

}  // namespace detail

SystemError::SystemError(const std::string& what, int errno_value)
    : Error(fmt::format("{}: {} ({})", what, strerrorname_np(errno_value) ? strerrorname_np(errno_value) : "errno",
                        strerrordesc_np(errno_value) ? strerrordesc_np(errno_value) : std::to_string(errno_value))),
      errno_value_(errno_value) {}

}  // namespace retinue
