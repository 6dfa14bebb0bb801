#pragma once

#include <cstdint>
#include <optional>

#include "collective/board/board.h"
#include "collective/board/relay.h"
#include "retinue/collective/options.h"
#include "retinue/ipc/job_group.h"

namespace retinue {

/// Where a group's members are, and what follows where they don't share a last cache or a memory node.
class Places {
 public:
  /// Tells the others where this member is. To be called before the group's opening.
  static void publish(Member& own, const CommunicatorOptions& options);
  /// To be called when all have done so. Errors: SharedMemoryExhausted.
  void find(const JobGroup& group, const Board& board, const BlockHandle& board_block);

  /// Null in a group of one last cache.
  Relay* relay() { return relay_ ? &*relay_ : nullptr; }
  bool span_caches() const { return relay_.has_value(); }
  /// Then what lies in a chunk for one member alone lies in that one's.
  bool span_nodes() const { return span_nodes_; }

 private:
  std::optional<Relay> relay_;
  bool span_nodes_ = false;
};

}  // namespace retinue
