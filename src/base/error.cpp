#include "retinue/base/error.h"

#include <fmt/format.h>

#include <cstring>

namespace retinue {

namespace detail {

#ifdef _GLIBCXX_DEBUG
const char kLibraryWasBuiltWithGlibcxxDebug = 1;
#else
const char kLibraryWasBuiltWithoutGlibcxxDebug = 1;
#endif
#if defined(_GLIBCXX_USE_CXX11_ABI) && !_GLIBCXX_USE_CXX11_ABI
const char kLibraryWasBuiltWithoutCxx11Abi = 1;
#else
const char kLibraryWasBuiltWithCxx11Abi = 1;
#endif

}  // namespace detail

SystemError::SystemError(const std::string& what, int errno_value)
    : Error(fmt::format("{}: {} ({})", what, strerrorname_np(errno_value) ? strerrorname_np(errno_value) : "errno",
                        strerrordesc_np(errno_value) ? strerrordesc_np(errno_value) : std::to_string(errno_value))),
      errno_value_(errno_value) {}

}  // namespace retinue
