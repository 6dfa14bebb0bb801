#pragma once

#include <chrono>
#include <cstddef>
#include <iterator>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "retinue/launch/detail/chunk.h"
#include "retinue/launch/detail/task.h"

/// How tasks are given and waited for. Not used directly.
namespace retinue::detail {

/// A task, in the process that gave it.
struct Task;
using TaskPtr = std::shared_ptr<Task>;

/// Gives tasks to processes, and notices which of these end. Defined by the library.
class TaskClient;
using TaskClientPtr = std::shared_ptr<TaskClient>;

using TaskTime = std::chrono::nanoseconds;

/// The name of a task in messages: "item 3 of Pool::map".
struct TaskLabel {
  const char* call;
  std::size_t first = 0;  ///< Item.
  std::size_t count = 0;  ///< Number of items; 0: the call has none.
};

/// The function that a task runs; `type` is for messages only.
struct TaskFunction {
  EntryThunk thunk;
  const char* type;
};

template <auto fn>
TaskFunction task_function() {
  return {&task_thunk<fn>, __PRETTY_FUNCTION__};
}
template <auto fn>
TaskFunction chunk_function() {
  return {&chunk_thunk<fn>, __PRETTY_FUNCTION__};
}

/// Blocking: while the client has as many tasks in progress as it accepts.
/// Errors: Closed; the error that keeps the client's processes from running; SharedMemoryExhausted.
TaskPtr submit_task(TaskClient& client, const TaskFunction& function, Encoded payload, const TaskLabel& label);

/// Returns the number of items in a chunk if the caller doesn't specify it.
std::size_t chunk_size_for(TaskClient& client, std::size_t items);
/// Returns the number of tasks that keep all processes busy while the caller processes results.
std::size_t tasks_ahead(TaskClient& client);

/// Waits until all tasks are done. Returns false if not in time. Errors: SystemError if the job's guardian was killed.
bool wait_for_all(TaskClient& client, std::span<const TaskPtr> tasks, TaskTime timeout);
/// Waits until one of the tasks is done and returns its index, or tasks.size() if none is in time.
std::size_t wait_for_any(TaskClient& client, std::span<const TaskPtr> tasks, TaskTime timeout);

/// Returns the result of a task that is done. It is valid as long as the task exists. Errors: the task's failure.
std::string_view result_of(const Task& task);
/// Errors: ProcessRaisedException, always.
[[noreturn]] void throw_item_failure(const Task& task, const ItemError& error);
/// Errors: TimeoutError, always.
[[noreturn]] void throw_not_in_time(const Task& task, TaskTime timeout);

template <class Result>
Result task_value(std::span<const TaskPtr> tasks) {
  const std::string_view archive = result_of(*tasks.front());
  if constexpr (!std::is_void_v<Result>) {
    ValueInput input(archive, Purpose::kCall);
    std::vector<Result> row = read_row<Result>(input);
    return std::move(row.at(0));
  }
}

template <class Result>
struct MapResultOf {
  using Type = std::vector<Result>;
};
template <>
struct MapResultOf<void> {
  using Type = void;
};
template <class Result>
using MapResult = typename MapResultOf<Result>::Type;

template <class Result>
MapResult<Result> map_values(std::span<const TaskPtr> tasks) {
  ChunkValues<Result> all;
  for (const TaskPtr& task : tasks) {
    ValueInput input(result_of(*task), Purpose::kCall);
    std::vector<ItemError> errors;
    input(errors);
    if (!errors.empty()) throw_item_failure(*task, errors.front());
    if constexpr (!std::is_void_v<Result>) {
      std::vector<Result> values = read_row<Result>(input);
      if (all.values.empty() && tasks.size() == 1) return values;
      all.values.insert(all.values.end(), std::make_move_iterator(values.begin()),
                        std::make_move_iterator(values.end()));
    }
  }
  if constexpr (!std::is_void_v<Result>) return std::move(all.values);
}

}  // namespace retinue::detail
