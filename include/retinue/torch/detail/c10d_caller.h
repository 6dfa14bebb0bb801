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

/// Where the program calls c10d, or else, as in C++, only what it calls: `call`, which must exist as long.
inline CallSite c10d_call_site(const char* call) {
  const C10dCaller caller = c10d_caller.load(std::memory_order_acquire);
  const std::optional<CallSite> site = caller == nullptr ? std::nullopt : caller();
  return site.value_or(CallSite(call, 0));
}

}  // namespace retinue::detail
