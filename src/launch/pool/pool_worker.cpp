#include "launch/pool/pool_worker.h"

#include "launch/tasks/task_server.h"

namespace retinue {

void run_pool_worker(RankContext& context, const WorkerStart& start) {
  const TaskBoard board(start.board);
  if (start.has_initializer != 0) detail::find_entry(start.initializer)(context, start.arguments);
  board.header().ready[start.number].store(1, std::memory_order_release);
  serve_tasks(board, context, {.most_calls = start.most_calls});
}

}  // namespace retinue
