#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

/// Texts in fields of fixed size, as they stand in what processes share.
namespace retinue {

/// The text in a field, whoever wrote it: it ends with the first zero, or with the field.
template <std::size_t kBytes>
std::string text_of(const char (&field)[kBytes]) {
  return {field, strnlen(field, kBytes)};
}

/// Writes as much of `text` into a field of zeros as leaves a zero at its end.
template <std::size_t kBytes>
void fill(char (&field)[kBytes], std::string_view text) {
  std::memcpy(field, text.data(), std::min(text.size(), kBytes - 1));
}

/// Writes as much of the end of `text` as there is room for, and zeros behind it: of a path the end says more.
template <std::size_t kBytes>
void fill_tail(char (&field)[kBytes], std::string_view text) {
  if (text.size() > kBytes) text.remove_prefix(text.size() - kBytes);
  std::memset(field, 0, kBytes);
  std::memcpy(field, text.data(), text.size());
}

}  // namespace retinue
