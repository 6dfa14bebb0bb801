#include "collective/select.h"

#include <algorithm>

#include "collective/board.h"

namespace retinue {
namespace {

/// Beyond this the direct path's second hop costs less than staging's copy. Measured on two cores of one L3.
constexpr std::size_t kStagedInJobMemory = std::size_t{8} << 10;
/// Each member of a staged all_reduce reads all members' data; this bounds what it reads.
constexpr std::size_t kStagedReads = std::size_t{128} << 10;

}  // namespace

bool stages_first(const CallShape& shape, int size, bool in_job_memory) {
  const std::size_t bytes = shape.bytes();
  if (bytes <= kInlineBytes || size < 2) return false;
  if (in_job_memory) return bytes <= kStagedInJobMemory;
  if (shape.kind != CallKind::kAllReduce) return bytes <= kStageBytes;
  return bytes <= std::min(kStageBytes, kStagedReads / static_cast<std::size_t>(size));
}

Path select_path(const CallShape& shape, int size, std::uint8_t places) {
  const std::size_t bytes = shape.bytes();
  if (bytes == 0 || size < 2) return Path::kNothing;
  if (bytes <= kInlineBytes) return Path::kInline;
  if ((places & kStaged) != 0) return Path::kStaged;
  if ((places & kInJobMemory) != 0) return Path::kDirect;
  return Path::kChunked;
}

}  // namespace retinue
