#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/call.h"

namespace retinue {

/// How the data of a collective travel. docs/reference/algorithms.md gives each path's cost.
enum class Path : std::uint8_t {
  kNothing,  ///< No data, or nobody to share them with.
  kInline,   ///< In the lines themselves.
  kStaged,   ///< Copied into staging buffers before the lines were published: one hop.
  kDirect,   ///< Straight from and to the members' buffers in job memory.
  kChunked,  ///< Through small shared chunks, pipelined.
};

/// What the lines of all members say together.
struct Arrival {
  std::uint8_t places = 0;  ///< What the lines of all givers have in common.
  bool uneven = false;      ///< Parts may have sizes of their own.
  std::uint64_t count = 0;  ///< Of the largest part that anybody gives: elements for reductions, bytes otherwise.
};

/// Whether a member copies its data into its staging buffer before it publishes its line. It can't know the other
/// members' places yet; if they decide otherwise, the copy is for nothing and nobody looks at it.
/// `bytes`: of all that it gives.
bool stages_first(const Pattern& pattern, int size, std::size_t bytes, bool in_job_memory);

/// Bytes that fit a line beside what the reduction needs there.
constexpr std::size_t line_room(ReduceOp op) {
  return op == ReduceOp::kPremulSum ? kFactorWord * 8 : kInlineBytes;
}

/// The path of a collective whose members' lines agree. Pure: all members come to the same answer.
Path select_path(const Call& call, int size, const Arrival& arrival);

}  // namespace retinue
