#pragma once

#include <atomic>
#include <optional>

#include "retinue/collective/call.h"

namespace retinue::detail {

/// Finds where the program calls c10d, which doesn't tell its backends. Returns nothing if this thread doesn't know.
/// The site's file name must exist for as long as the process.
using C10dCaller = std::optional<CallSite> (*)();

/// What c10d's calls ask, if it is set. The Python module sets it.
inline std::atomic<C10dCaller> c10d_caller{nullptr};

}  // namespace retinue::detail
