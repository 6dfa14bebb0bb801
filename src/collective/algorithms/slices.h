#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace retinue {

/// A range of bytes.
struct Slice {
  std::size_t begin;
  std::size_t bytes;
};

constexpr std::size_t kCacheLine = 64;

/// What slices are made of: whole elements, and whole cache lines where few elements fill some.
constexpr std::size_t slice_unit(std::size_t element_bytes) {
  if (kCacheLine % element_bytes == 0) return kCacheLine;
  const std::size_t both = element_bytes > 1024 ? element_bytes : std::lcm(kCacheLine, element_bytes);
  return both <= 1024 ? both : element_bytes;
}

/// `rank`'s part of `bytes` bytes. Parts begin at multiples of `unit`: with a cache line no line has two writers where
/// the buffers are aligned. The last ranks' parts may be empty.
inline Slice slice_of(std::size_t bytes, int ranks, int rank, std::size_t unit = kCacheLine) {
  const std::size_t units = (bytes + unit - 1) / unit;
  const std::size_t parts = static_cast<std::size_t>(ranks);
  const std::size_t per_rank = (units + parts - 1) / parts * unit;
  const std::size_t begin = std::min(bytes, static_cast<std::size_t>(rank) * per_rank);
  return {.begin = begin, .bytes = std::min(per_rank, bytes - begin)};
}

}  // namespace retinue
