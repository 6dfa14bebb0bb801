#include "launch/tasks/task_server.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "ipc/memory/payload.h"
#include "ipc/memory/ring_owner.h"
#include "launch/runtime/forked_child.h"
#include "os/testing/crash_point.h"
#include "retinue/base/deadline.h"
#include "retinue/base/error.h"
#include "retinue/launch/detail/task.h"

namespace retinue {
namespace {

using Phase = TaskState::Phase;

class TaskServer {
 public:
  TaskServer(const TaskBoard& board, RankContext& context)
      : board_(board), context_(context), self_(own_owner(*board.memory())) {}

  ServeEnd serve(const ServeOptions& options);

 private:
  bool takes_leave();
  bool claim(TaskName name);
  void run(TaskName name);
  /// Errors: whatever the task throws.
  detail::Encoded result_of(const TaskRecord& record);
  detail::EntryThunk function_at(std::uint32_t index);
  void publish_report(TaskRecord& record, detail::TaskReport report);

  const TaskBoard& board_;
  RankContext& context_;
  std::uint32_t self_;
  std::map<std::uint32_t, detail::EntryThunk> functions_;
};

bool TaskServer::takes_leave() {
  std::atomic<std::uint32_t>& to_leave = board_.header().to_leave;
  std::uint32_t count = to_leave.load(std::memory_order_acquire);
  while (count != 0)
    if (to_leave.compare_exchange_weak(count, count - 1, std::memory_order_acq_rel)) return true;
  return false;
}

bool TaskServer::claim(TaskName name) {
  if (name.index >= board_.header().record_count) return false;
  std::uint64_t queued = TaskState(name.generation, Phase::kQueued).word();
  // Acquires what the client wrote before it queued the task. Fails for the name of a task that a dead process had
  // begun.
  return board_.record(name.index)
      .state.compare_exchange_strong(queued, TaskState(name.generation, Phase::kTaken, self_).word(),
                                     std::memory_order_acq_rel);
}

detail::EntryThunk TaskServer::function_at(std::uint32_t index) {
  if (index >= TaskBoardHeader::kMostFunctions)
    throw UsageError("a task has an invalid function: job memory was overwritten");
  detail::EntryThunk& thunk = functions_[index];
  if (thunk != nullptr) return thunk;
  detail::EntryKey key;
  detail::decode_value(payload_bytes(*board_.memory(), board_.header().functions[index]), key);
  return thunk = detail::find_entry(key);
}

detail::Encoded TaskServer::result_of(const TaskRecord& record) {
  return function_at(record.function)(context_, board_.arguments_of(record)).value;
}

/// Where there is no memory for all of it, type and message as far as they fit into the record.
void TaskServer::publish_report(TaskRecord& record, detail::TaskReport report) {
  try {
    board_.store_result(record, detail::encode_value(report));
  } catch (const Error&) {
    constexpr std::size_t kChars = TaskRecord::kRoomBytes / 4;
    report.stack.clear();
    report.type.resize(std::min(report.type.size(), kChars));
    report.message.resize(std::min(report.message.size(), kChars));
    board_.store_result(record, detail::encode_value(report));
  }
}

void TaskServer::run(TaskName name) {
  TaskRecord& record = board_.record(name.index);
  Phase phase = Phase::kValue;
  try {
    const detail::Encoded result = result_of(record);
    end_forked_child(*board_.memory());
    board_.store_result(record, result);
  } catch (...) {
    end_forked_child(*board_.memory());
    phase = Phase::kRaised;
    publish_report(record, detail::report_current_exception());
  }
  RETINUE_CRASH_POINT();
  record.state.store(TaskState(name.generation, phase, self_).word(), std::memory_order_release);
  RETINUE_CRASH_POINT();
  board_.note_done(name);
}

ServeEnd TaskServer::serve(const ServeOptions& options) {
  const Deadline deadline = Deadline::after(options.timeout);
  try {
    for (std::uint64_t calls = 0;;) {
      if (takes_leave()) return ServeEnd::kLeft;
      RETINUE_CRASH_POINT();
      detail::TakenMessage taken;
      if (!board_.tasks().take(taken, deadline.left())) return ServeEnd::kTimeout;
      std::uint64_t word = 0;
      std::memcpy(&word, taken.bytes.data(), sizeof word);
      const TaskName name = TaskName::of(word);
      RETINUE_CRASH_POINT();
      const bool is_mine = claim(name);
      RETINUE_CRASH_POINT();
      board_.tasks().finish(taken);
      if (!is_mine) continue;
      calls += board_.record(name.index).calls;
      run(name);
      if (options.most_calls != 0 && calls >= options.most_calls) return ServeEnd::kLeft;
    }
  } catch (const Closed&) {
    return ServeEnd::kClosed;
  }
}

}  // namespace

ServeEnd serve_tasks(const TaskBoard& board, RankContext& context, const ServeOptions& options) {
  return TaskServer(board, context).serve(options);
}

}  // namespace retinue
