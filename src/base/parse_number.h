#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace retinue {

/// Returns the number that `text` consists of, in any locale; nullopt if it is anything else or doesn't fit into
/// `Number`.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

}  // namespace retinue
