#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

/// Numbers as stores send and write them: the lowest byte first, whatever the machine.
namespace retinue {

template <std::unsigned_integral T>
void put_number(std::string& text, T number) {
  for (std::size_t i = 0; i < sizeof(T); ++i) text += static_cast<char>(number >> (8 * i) & 0xff);
}

/// The number that `text` begins with; it is that long at least.
template <std::unsigned_integral T>
T number_at(std::string_view text) {
  T number = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) number |= static_cast<T>(static_cast<unsigned char>(text[i])) << (8 * i);
  return number;
}

}  // namespace retinue
