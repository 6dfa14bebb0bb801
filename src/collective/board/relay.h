#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/board/board.h"
#include "collective/board/domains.h"
#include "retinue/ipc/job_group.h"

namespace retinue {

/// Copies of all members' lines of one call, made by a domain's leader for its members.
struct RelaySlot {
  alignas(64) std::atomic<std::uint64_t> own_copied;  ///< Sequence up to which it has its own domain's lines,
  alignas(64) std::atomic<std::uint64_t> all_copied;  ///< and those of all.
  LineData lines[1];                                  ///< By rank: as many as there are members.
};

/// How lines travel in groups that span several last caches: by two levels. Each domain's leader copies its members'
/// lines, then the other leaders' copies, and members read all from it. So a line crosses from cache to cache once for
/// each domain, and not once for each member: three hops in place of one, of which one is long.
///
/// It is a short cut and no more: whoever doesn't find all lines by it soon looks at the members' own lines. So nobody
/// depends on a leader, which may be late, dead, or in a call that doesn't relay.
///
/// A leader writes a slot again for sequence s + kLines, when all members have published s + 1: nobody reads it.
class Relay {
 public:
  /// In a group of several domains. A leader makes its slots, in a block that the board's block owns.
  Relay(const JobGroup& group, const Board& board, const BlockHandle& board_block, Domains domains);

  /// To be called when this member has published its line of `sequence`, in a call in which all wait for all.
  void begin(std::uint64_t sequence);
  /// Does what this member can do now, without waiting. Returns all lines of the call, by rank, once they are there.
  const LineData* advance();

 private:
  bool leads() const { return domains_.leaders[own_] == rank_; }
  std::size_t bytes_of_slot() const {
    return sizeof(RelaySlot) + static_cast<std::size_t>(board_.size() - 1) * sizeof(LineData);
  }
  /// Null where the leader has not made its slots yet. `domain`: its index among leaders.
  RelaySlot* slot_of(std::size_t domain);
  bool copy_own(RelaySlot& slot);
  bool copy_others(RelaySlot& slot);

  const JobMemory& memory_;
  Board board_;
  Domains domains_;
  int rank_;
  std::size_t own_;                        ///< This member's domain, by its index among leaders.
  std::vector<std::vector<int>> members_;  ///< Of each domain,
  std::vector<std::byte*> slots_;          ///< and its leader's slots, once they were seen.
  std::uint64_t sequence_ = 0;
  std::size_t copied_members_ = 0;  ///< In this call.
  std::size_t copied_domains_ = 0;
};

}  // namespace retinue
