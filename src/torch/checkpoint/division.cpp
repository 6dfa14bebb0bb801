#include "torch/checkpoint/division.h"

#include <algorithm>
#include <tuple>

#include "retinue/base/error.h"
#include "torch/checkpoint/crc32.h"

namespace retinue {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

/// Positions count the bytes of the chosen records, one after the other.
class EvenCuts {
 public:
  EvenCuts(const std::vector<SavedExtent>& records, const std::vector<std::size_t>& chosen)
      : records_(records), chosen_(chosen) {
    for (const std::size_t record : chosen) total_ += records[record].bytes;
  }

  std::vector<RecordPart> between(int ranks, int rank) const {
    const std::uint64_t first = cut(ranks, rank);
    const std::uint64_t last = cut(ranks, rank + 1);
    std::vector<RecordPart> parts;
    std::uint64_t position = 0;
    for (const std::size_t record : chosen_) {
      const std::uint64_t end = position + records_[record].bytes;
      const std::uint64_t from = std::max(position, first);
      const std::uint64_t to = std::min(end, last);
      if (from < to) parts.push_back({.record = record, .begin = from - position, .bytes = to - from});
      position = end;
    }
    return parts;
  }

 private:
  std::uint64_t cut(int ranks, int index) const {
    if (index == ranks) return total_;
    const auto even = static_cast<std::uint64_t>(static_cast<double>(total_) / ranks * index);
    std::uint64_t position = 0;
    for (const std::size_t record : chosen_) {
      const SavedExtent& extent = records_[record];
      if (even < position + extent.bytes) {
        const std::uint64_t in_page = (extent.offset + even - position) % kPageBytes;
        return even - std::min(in_page, even - position);
      }
      position += extent.bytes;
    }
    return total_;
  }

  const std::vector<SavedExtent>& records_;
  const std::vector<std::size_t>& chosen_;
  std::uint64_t total_ = 0;
};

}  // namespace

std::vector<RecordPart> divide(const std::vector<SavedExtent>& records, int ranks, int rank) {
  std::vector<std::size_t> all(records.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  return EvenCuts(records, all).between(ranks, rank);
}

std::vector<RecordPart> parts_to_write(const Manifest& manifest, const std::vector<SavedExtent>& records, int ranks,
                                       int rank) {
  std::vector<std::size_t> divided;
  std::vector<RecordPart> parts;
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
    const SavedTensor& tensor = manifest.tensors[i];
    if (tensor.spread == Spread::kDivided) divided.push_back(i);
    if (tensor.spread == Spread::kRoot && rank == 0)
      parts.push_back({.record = i, .begin = 0, .bytes = tensor.bytes()});
    for (const SavedSlice& slice : tensor.slices)
      if (slice.rank == rank)
        parts.push_back({.record = i,
                         .begin = static_cast<std::uint64_t>(slice.begin) * tensor.element_bytes(),
                         .bytes = static_cast<std::uint64_t>(slice.end - slice.begin) * tensor.element_bytes()});
  }
  const std::vector<RecordPart> shared = EvenCuts(records, divided).between(ranks, rank);
  parts.insert(parts.end(), shared.begin(), shared.end());
  std::ranges::sort(parts, {}, [](const RecordPart& part) { return std::tuple(part.record, part.begin); });
  return parts;
}

std::vector<std::uint32_t> join_crcs(const std::vector<std::vector<RecordPart>>& of_ranks,
                                     const std::vector<SavedExtent>& records, std::size_t count) {
  std::vector<RecordPart> parts;
  for (const std::vector<RecordPart>& of_rank : of_ranks) parts.insert(parts.end(), of_rank.begin(), of_rank.end());
  std::ranges::sort(parts, {}, [](const RecordPart& part) { return std::tuple(part.record, part.begin); });
  std::vector<std::uint32_t> crcs(count, 0);
  std::vector<std::uint64_t> ends(count, 0);
  for (const RecordPart& part : parts) {
    if (part.begin != ends.at(part.record)) break;
    crcs[part.record] = crc32_combine(crcs[part.record], part.crc, part.bytes);
    ends[part.record] += part.bytes;
  }
  for (std::size_t i = 0; i < count; ++i)
    if (ends[i] != records[i].bytes) throw Error("no rank has all bytes of " + records[i].name);
  return crcs;
}

}  // namespace retinue
