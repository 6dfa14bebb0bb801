#pragma once

#include <cstddef>
#include <cstdint>

namespace retinue {

/// The CRC-32 of zip files of the bytes before, whose CRC-32 is `before`, and these.
std::uint32_t crc32(const void* data, std::size_t bytes, std::uint32_t before = 0);

/// The same without the processor's instructions for it.
std::uint32_t crc32_by_tables(const void* data, std::size_t bytes, std::uint32_t before = 0);

/// The CRC-32 of bytes with the CRC-32 `first`, followed by `second_bytes` bytes with the CRC-32 `second`.
std::uint32_t crc32_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes);

}  // namespace retinue
