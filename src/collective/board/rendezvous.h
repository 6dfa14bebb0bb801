#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collective/board/board.h"
#include "ipc/memory/job_clock.h"
#include "retinue/ipc/block_handle.h"
#include "retinue/ipc/job_group.h"

namespace retinue {

/// A group's board, and the block that this member owns together with the others.
struct JoinedBoard {
  Board board;
  BlockHandle block;
};

/// Finds the board of `group`'s next communicator, or makes it if this member is the first. The k-th communicator that
/// a member makes of one group name meets the k-th of the others. Blocking: only while another process of the job holds
/// the registry, until `deadline`; it doesn't wait for members. Errors: TimeoutError, UsageError,
/// SharedMemoryExhausted.
JoinedBoard join_board(const JobGroup& group, JobDeadline deadline);

/// Marks the member as gone and gives its share of the board back. Never waits.
void leave_board(const JobGroup& group, const JoinedBoard& joined);

/// The table that later groups of the job begin with. Blocking and errors: as join_board().
void set_job_paths(const JobGroup& group, const PathTable& table, JobDeadline deadline);

/// A group of the job, as the registry names it: its board may be gone, which `generation` tells.
struct SeenGroup {
  std::string name;
  Board board;
  BlockHandle block;
  std::uint64_t generation = 0;

  bool is_there() const { return board.header().generation.load(std::memory_order_acquire) == generation; }
};
/// All of them. Blocking and errors: as join_board().
std::vector<SeenGroup> groups_of_job(const JobGroup& group, JobDeadline deadline);

/// Whether a process that joined as `member` (or never did) can take part no more.
bool is_gone(const JobMemory& memory, const Member& member);

}  // namespace retinue
