#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "collective/board/path_table.h"
#include "collective/call/call.h"

namespace retinue {

/// How the data of a collective travel. docs/reference/algorithms.md gives each path's cost.
enum class Path : std::uint8_t {
  kNothing,  ///< No data, or nobody to share them with.
  kInline,   ///< In the lines themselves.
  kStaged,   ///< Copied into staging before the lines were published: one hop.
  kDirect,   ///< Straight from and to the members' buffers in job memory.
  kChunked,  ///< Through small shared chunks, pipelined.
};

/// From `first` to before `last`.
struct RankRange {
  int first;
  int last;
};

/// What the lines of members say together.
struct Arrival {
  std::uint8_t places = 0;  ///< What the lines of all givers have in common; of a gather, of those that aren't staged.
  bool uneven = false;      ///< Parts may have sizes of their own.
  bool is_list = false;     ///< The same, as far as givers say so: such parts don't travel in lines.
  std::uint64_t count = 0;  ///< Of the largest part that anybody gives: elements for reductions, bytes otherwise.
};

/// Whether a member copies its data into its staging before it publishes its line. It can't know the other
/// members' places yet; if they decide otherwise, the copy is for nothing and nobody looks at it.
/// `bytes`: of all that it gives.
bool stages_first(const PathTable& table, const Pattern& pattern, int size, std::size_t bytes, bool in_job_memory);

/// Bytes that fit a line beside what the reduction needs there.
constexpr std::size_t line_space(ReduceOp op) {
  if (op == ReduceOp::kFunction) return kFunctionWord * 8;
  return op == ReduceOp::kPremulSum ? kFactorWord * 8 : kInlineBytes;
}

/// Whose lines a member needs in a call whose data travel in lines and staging: who publishes later does not concern
/// it. `last` is behind `first`: who needs none but its own is given that.
RankRange needed_lines(const Call& call, int rank, int size);

/// Whether the data of all members' reductions travel in lines and staging, whatever memory each one's are in.
bool all_stage_first(const PathTable& table, const Call& call, int size);

/// The path of a collective whose members' lines agree. Pure: all members come to the same answer.
Path select_path(const Call& call, int size, const Arrival& arrival);

/// The path of an even collective whose members all give `part_bytes` a part, or parts of that, from the same kind of
/// memory.
Path usual_path(const PathTable& table, CollectiveKind kind, int size, std::size_t part_bytes, bool in_job_memory);

std::string_view name_of(Path path);

/// For people: the paths of all collectives in a group of `size`.
std::string explain_paths(const PathTable& table, TableSource source, int size);

}  // namespace retinue
