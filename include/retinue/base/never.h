#pragma once

namespace retinue::detail {

/// False, but not before a template is instantiated: for static_assert in one that only says what to write instead.
template <class...>
constexpr bool kNever = false;

/// Result of a pool's calls that take a function among their arguments, which none does.
template <class... Given>
struct NeedsFunction {
  static_assert(kNever<Given...>,
                "the function is a template argument: write pool.apply<fn>(arguments...) and pool.map<fn>(items)");
};

}  // namespace retinue::detail
