#pragma once

#include <cstdint>
#include <string_view>

namespace retinue {

/// CRC-32C (Castagnoli), as TFRecord files have it: rotated, and a constant added.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace retinue
