#pragma once

#include <cstdint>

#include "collective/line.h"

namespace retinue {

/// How the data of a collective travel. docs/reference/algorithms.md gives each path's cost.
enum class Path : std::uint8_t {
  kNothing,  ///< No data, or nobody to share them with.
  kInline,   ///< In the lines themselves.
  kStaged,   ///< Copied into staging buffers before the lines were published: one hop.
  kDirect,   ///< Straight from and to the members' buffers in job memory.
  kChunked,  ///< Through small shared chunks, pipelined.
};

/// Whether a member copies its data into its staging buffer before it publishes its line. It can't know the other
/// members' places yet; if they decide otherwise, the copy is for nothing and nobody looks at it.
bool stages_first(const CallShape& shape, int size, bool in_job_memory);

/// The path of a collective whose members' lines agree. `places`: what all lines that contribute data have in common.
/// Pure: all members come to the same answer.
Path select_path(const CallShape& shape, int size, std::uint8_t places);

}  // namespace retinue
