#include "progress/tags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "retinue/base/error.h"

namespace retinue {
namespace {

/// How many bytes the character at the begin of the text has; 0: it is none.
std::size_t length_of_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return 1;
  const std::size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < length) return 0;
  std::uint32_t code = byte(0) & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if (byte(i) >> 6 != 2) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::uint32_t kLowest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  return code < kLowest[length] || code > 0x10ffff || is_surrogate ? 0 : length;
}

/// The place of the first byte that is no UTF-8; the size if there is none.
std::size_t first_bad_byte(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t length = length_of_character(text.substr(at));
    if (length == 0) break;
    at += length;
  }
  return at;
}

}  // namespace

void check_utf8(std::string_view call, std::string_view text) {
  if (const std::size_t bad = first_bad_byte(text); bad < text.size())
    throw UsageError(
        fmt::format("{}: byte {} of the text is not UTF-8, which TensorBoard needs; convert it", call, bad));
}

void check_tag(std::string_view call, std::string_view tag) {
  if (tag.empty()) throw UsageError(fmt::format("{}: the tag is empty; name what is logged, as \"loss/train\"", call));
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (const auto found = std::ranges::find_if(tag, is_control); found != tag.end())
    throw UsageError(
        fmt::format("{}: the tag has a control character (a line break, for example) at byte {}; use "
                    "printable characters",
                    call, found - tag.begin()));
  check_utf8(call, tag);
}

}  // namespace retinue
