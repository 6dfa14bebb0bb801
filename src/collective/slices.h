#pragma once

#include <algorithm>
#include <cstddef>

namespace retinue {

/// A range of bytes.
struct Slice {
  std::size_t begin;
  std::size_t bytes;
};

/// `rank`'s part of `bytes` bytes. Parts begin at multiples of a cache line, so that no line has two writers where the
/// buffers are aligned; the last ranks' parts may be empty.
inline Slice slice_of(std::size_t bytes, int ranks, int rank) {
  constexpr std::size_t kUnit = 64;
  const std::size_t units = (bytes + kUnit - 1) / kUnit;
  const std::size_t parts = static_cast<std::size_t>(ranks);
  const std::size_t per_rank = (units + parts - 1) / parts * kUnit;
  const std::size_t begin = std::min(bytes, static_cast<std::size_t>(rank) * per_rank);
  return {.begin = begin, .bytes = std::min(per_rank, bytes - begin)};
}

}  // namespace retinue
