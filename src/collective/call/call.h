#pragma once

#include <string>
#include <string_view>

#include "collective/board/line.h"
#include "collective/board/pattern.h"
#include "retinue/base/error.h"
#include "retinue/collective/call.h"

namespace retinue {

/// One member's call, checked and ready to be published. A view: what it was made of stays in place.
struct Call {
  /// Member by member: a brace for all would clear the whole first, which takes as long as a hop.
  explicit Call(const CollectiveCall& call, CallSite where = {"", 0})
      : what(call), pattern(pattern_of(call.kind)), count(call.count), site(where) {}

  /// Not copied: its fields are written one by one just before, and reading them together would wait for all of that.
  const CollectiveCall& what;
  std::span<const ConstBytes> inputs;  ///< Of an uneven call, where this member gives a part for each rank.
  std::span<const Bytes> outputs;      ///< Of an uneven call, where this member takes parts.
  Pattern pattern;
  CallShape shape;    ///< Its count is that of the largest part that this member gives (or takes, if it gives none).
  std::size_t count;  ///< Of this member's own data: elements of a part, or of all buffers of an all_reduce_coalesced.
  std::size_t element_bytes = 1;
  std::uint64_t signature = 0;  ///< Of an all_reduce_coalesced: of its buffers' sizes.
  bool gives = false;
  bool takes = false;
  bool overwrites_itself = false;  ///< The result lands where others would read the input: it must not be read there.
  CallSite site;

  /// Of this member's own data.
  std::size_t part_bytes() const { return count * element_bytes; }
  /// All that this member gives in an even call.
  std::size_t given_bytes(int size) const {
    return part_bytes() * (pattern.part_per_taker ? static_cast<std::size_t>(size) : 1);
  }
  ConstBytes input_part(int rank) const;
  /// Where what `rank` gives goes; for reductions, where the result goes.
  Bytes output_part(int rank) const;
};

/// Checks the buffers of an all_reduce_coalesced, and counts them together. Errors: UsageError.
void check_coalesced(Call& call);

/// Errors: UsageError for what no group could do.
Call checked_call(const CollectiveCall& what, int rank, int size, CallSite site);

/// The error of a process that is a fork() of the group's member `rank`. `advice` says what to do instead.
UsageError error_in_fork(const std::string& group, int rank, std::string_view advice);

}  // namespace retinue
