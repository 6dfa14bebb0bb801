#include "collective/call/overlap.h"

#include <algorithm>
#include <cstdint>

namespace retinue {
namespace {

std::uintptr_t begin_of(ConstBytes bytes) {
  return reinterpret_cast<std::uintptr_t>(bytes.data());
}
std::uintptr_t end_of(ConstBytes bytes) {
  return begin_of(bytes) + bytes.size();
}

/// The end that lies farthest behind of those that were seen, and whose it is.
struct FarthestEnd {
  std::uintptr_t end = 0;
  std::size_t index = 0;

  void see(std::uintptr_t other, std::size_t of) {
    if (other > end) *this = {other, of};
  }
};

}  // namespace

bool overlap(ConstBytes a, ConstBytes b) {
  return !a.empty() && !b.empty() && begin_of(a) < end_of(b) && begin_of(b) < end_of(a);
}

OverlappingPair overlapping_pair(std::span<const Bytes> buffers) {
  bool ascends = true;
  std::uintptr_t end = 0;
  for (const Bytes& buffer : buffers) {
    if (buffer.empty()) continue;
    ascends = ascends && begin_of(buffer) >= end;
    end = end_of(buffer);
  }
  if (ascends) return std::nullopt;
  std::vector<UsedBuffer> used;
  for (const Bytes& buffer : buffers) used.push_back({.bytes = buffer});
  return overlapping_pair(used);
}

OverlappingPair overlapping_pair(const std::vector<UsedBuffer>& buffers) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < buffers.size(); ++i)
    if (!buffers[i].bytes.empty()) order.push_back(i);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return begin_of(buffers[i].bytes); });
  FarthestEnd read;
  FarthestEnd written;
  for (const std::size_t i : order) {
    const UsedBuffer& buffer = buffers[i];
    const std::uintptr_t begin = begin_of(buffer.bytes);
    for (const FarthestEnd& before : {written, buffer.is_written ? read : FarthestEnd{}})
      if (begin < before.end) return std::minmax({before.index, i});
    (buffer.is_written ? written : read).see(end_of(buffer.bytes), i);
  }
  return std::nullopt;
}

}  // namespace retinue
