#pragma once

namespace retinue::detail {

/// False, but not before a template is instantiated: for static_assert in one that only says what to write instead.
template <class...>
constexpr bool kNever = false;

}  // namespace retinue::detail
