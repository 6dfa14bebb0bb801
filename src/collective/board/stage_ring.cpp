#include "collective/board/stage_ring.h"

namespace retinue {

static_assert(kStageBytes % kStagingLine == 0 && 3 * kStageBytes <= kStagingBytes,
              "what a call stages, the call before it staged, and what is passed over at the ring's end");

/// What is staged is never in two parts.
std::uint64_t StageRing::begin_of(std::uint64_t bytes) const {
  const std::uint64_t at = end_ % kStagingBytes;
  return at + bytes > kStagingBytes ? end_ + (kStagingBytes - at) : end_;
}

std::uint64_t StageRing::call_before(std::uint64_t sequence, std::uint64_t agreed, std::size_t bytes) const {
  const std::uint64_t end = begin_of(in_lines(bytes)) + in_lines(bytes);
  if (end <= kStagingBytes) return 0;
  // What was staged up to here is written over.
  const std::uint64_t until = end - kStagingBytes;
  std::uint64_t call = sequence - 1;
  while (call > agreed && begins_[call % kLines] >= until) --call;
  // All are done with what was before the newest call that they all published.
  if (call < agreed || begins_[call % kLines] >= until) return 0;
  return call + 1;
}

std::size_t StageRing::take(std::size_t bytes) {
  begin_ = begin_of(in_lines(bytes));
  end_ = begin_ + in_lines(bytes);
  return place();
}

}  // namespace retinue
