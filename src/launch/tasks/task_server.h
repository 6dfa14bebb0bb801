#pragma once

#include <chrono>
#include <cstdint>

#include "launch/tasks/task_board.h"
#include "retinue/launch/rank_context.h"

namespace retinue {

struct ServeOptions {
  /// Tasks, each with as many calls as it has items, after which it is enough; 0: never.
  std::uint64_t most_calls = 0;
  std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max();
};

enum class ServeEnd {
  kClosed,  ///< There will be no more tasks.
  kLeft,    ///< One process too many, or it made as many calls as it was to.
  kTimeout,
};

/// Runs the board's tasks in this process, one after the other. What a task throws is its result.
/// Errors: SystemError when the job's guardian was killed.
ServeEnd serve_tasks(const TaskBoard& board, RankContext& context, const ServeOptions& options);

}  // namespace retinue
