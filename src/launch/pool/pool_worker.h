#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/tasks/task_board.h"
#include "retinue/launch/rank_context.h"

namespace retinue {

/// What a worker is given.
struct WorkerStart {
  TaskBoardBlocks board = {};
  std::uint32_t number = 0;
  std::uint64_t most_calls = 0;
  std::uint32_t has_initializer = 0;
  detail::EntryKey initializer = {};
  std::string arguments = {};
  std::vector<SharedBlock> references = {};  ///< Of the arguments.

  template <class Archive>
  void serialize(Archive& archive) {
    archive(board, number, most_calls, has_initializer, initializer, arguments, references);
  }
};

/// A worker's life.
void run_pool_worker(RankContext& context, const WorkerStart& start);

}  // namespace retinue
