#include "progress/crc32c.h"

#include <array>

namespace retinue {
namespace {

constexpr std::uint32_t kCastagnoli = 0x82F63B78;  // Bits in reverse.

constexpr std::array<std::uint32_t, 256> make_castagnoli_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ ((rest & 1) != 0 ? kCastagnoli : 0);
    table[byte] = rest;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kCastagnoliTable = make_castagnoli_table();

}  // namespace

std::uint32_t masked_crc32c(std::string_view bytes) {
  std::uint32_t rest = ~0u;
  for (const char c : bytes) rest = rest >> 8 ^ kCastagnoliTable[(rest ^ static_cast<unsigned char>(c)) & 0xff];
  const std::uint32_t crc = ~rest;
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

}  // namespace retinue
