#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "retinue/collective/call.h"

namespace retinue {

/// Whether they share a byte. Empty ones share none, wherever they lie.
bool overlap(ConstBytes a, ConstBytes b);

/// The indices of two of them that overlap, the lower one first; none where no two do.
using OverlappingPair = std::optional<std::pair<std::size_t, std::size_t>>;

/// Cost: one pass and no memory where they ascend.
OverlappingPair overlapping_pair(std::span<const Bytes> buffers);

/// A buffer of an operation that goes on beside others: two that only read may share bytes.
struct UsedBuffer {
  ConstBytes bytes;
  bool is_written = true;
};
OverlappingPair overlapping_pair(const std::vector<UsedBuffer>& buffers);

}  // namespace retinue
