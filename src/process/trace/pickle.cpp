#include "process/trace/pickle.h"

#include <bit>
#include <nlohmann/json.hpp>

namespace retinue {
namespace {

template <typename Number>
std::string little_endian(Number value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>(value >> 8 * i & 0xff);
  return bytes;
}

bool is_plain(std::string_view text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  return true;
}

/// Valid UTF-8, by way of a library that knows what that is.
std::string as_utf8(std::string_view text) {
  if (is_plain(text)) return std::string(text);
  const nlohmann::json json(text);
  const std::string quoted = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return nlohmann::json::parse(quoted).get<std::string>();
}

}  // namespace

Pickle& Pickle::number(std::int64_t value) {
  if (static_cast<std::int32_t>(value) == value) return add("J").add(little_endian(static_cast<std::uint32_t>(value)));
  return add("\x8a\x08").add(little_endian(static_cast<std::uint64_t>(value)));
}

Pickle& Pickle::real(double value) {
  const std::string bytes = little_endian(std::bit_cast<std::uint64_t>(value));
  return add("G").add(std::string(bytes.rbegin(), bytes.rend()));
}

Pickle& Pickle::text(std::string_view value) {
  const auto [known, is_new] = texts_.try_emplace(std::string(value), static_cast<std::uint32_t>(texts_.size()));
  const std::uint32_t number = known->second;
  const bool is_short = number < 256;
  const std::string name = is_short ? std::string(1, static_cast<char>(number)) : little_endian(number);
  if (!is_new) return add(is_short ? "h" : "j").add(name);
  const std::string text = as_utf8(value);
  add("X").add(little_endian(static_cast<std::uint32_t>(text.size()))).add(text);
  return add(is_short ? "q" : "r").add(name);
}

}  // namespace retinue
