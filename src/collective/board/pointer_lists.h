#pragma once

#include <cstddef>
#include <vector>

#include "collective/board/board.h"

namespace retinue {

/// Space for one of each per member, for a chunk and for a call's state, so that no call allocates but the first that
/// needs such a thing.
struct PointerLists {
  explicit PointerLists(int size)
      : sources(static_cast<std::size_t>(size)),
        destinations(static_cast<std::size_t>(size)),
        factors(static_cast<std::size_t>(size)) {
    ranks.reserve(static_cast<std::size_t>(size));
  }

  std::byte* chunk() {
    if (chunk_.empty()) chunk_.resize(kChunkBytes);
    return chunk_.data();
  }
  /// Two more, of which round `k` of a pipeline has one.
  std::byte* chunk_of_round(std::size_t k) {
    if (rounds_.empty()) rounds_.resize(2 * kChunkBytes);
    return rounds_.data() + k % 2 * kChunkBytes;
  }

  /// Space for what a call keeps while it waits, which one call at a time does.
  void* frame(std::size_t bytes) {
    if (frame_.size() < bytes) frame_.resize(bytes);
    return frame_.data();
  }

  std::vector<const void*> sources;
  std::vector<void*> destinations;
  std::vector<double> factors;
  std::vector<int> ranks;

 private:
  std::vector<std::byte> chunk_;
  std::vector<std::byte> rounds_;
  std::vector<std::byte> frame_;
};

}  // namespace retinue
