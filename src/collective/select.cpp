#include "collective/select.h"

#include <algorithm>

#include "collective/board.h"

namespace retinue {
namespace {

/// Beyond this the direct path's second hop costs less than staging's copy. Measured on two cores of one L3.
constexpr std::size_t kStagedInJobMemory = std::size_t{8} << 10;
/// Each taker of a staged reduction reads all givers' data; this bounds what it reads.
constexpr std::size_t kStagedReads = std::size_t{128} << 10;

}  // namespace

bool stages_first(const Pattern& pattern, int size, std::size_t bytes, bool in_job_memory) {
  if (size < 2) return false;
  if (in_job_memory) return bytes <= kStagedInJobMemory;
  if (pattern.result == Pattern::Result::kParts || pattern.part_per_taker) return bytes <= kStageBytes;
  return bytes <= std::min(kStageBytes, kStagedReads / static_cast<std::size_t>(size));
}

Path select_path(const Call& call, int size, const Arrival& arrival) {
  if (call.pattern.result == Pattern::Result::kNothing || arrival.count == 0 || size < 2) return Path::kNothing;
  const std::size_t given = arrival.count * call.element_bytes;
  const std::size_t parts = call.pattern.part_per_taker ? static_cast<std::size_t>(size) : 1;
  if (!arrival.uneven && given * parts <= line_room(call.shape.op)) return Path::kInline;
  if ((arrival.places & kStaged) != 0) return Path::kStaged;
  if ((arrival.places & kInJobMemory) != 0) return Path::kDirect;
  return Path::kChunked;
}

}  // namespace retinue
