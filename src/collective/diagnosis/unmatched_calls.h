#pragma once

#include <cstdint>

#include "collective/board/board.h"
#include "retinue/ipc/job_group.h"

namespace retinue {

/// To be called by a member that has just left, in peace. Says on standard error, once for the group, that its last
/// calls and those of members that had left before were not the same: where nobody needed another's data, nobody threw
/// that. `agreed`: up to which call this member knows that they were. Never waits.
void report_unmatched_calls(const JobGroup& group, const Board& board, std::uint64_t agreed);

/// To be called in place of it, and before it leaves, by a member that leaves since it failed, which says enough.
void suppress_unmatched_calls(const Board& board);

}  // namespace retinue
