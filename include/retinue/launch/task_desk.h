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

#include "retinue/launch/chunk.h"
#include "retinue/launch/task.h"

/// Where tasks are given and waited for. Not used directly.
namespace retinue::detail {

/// A task as the one who gave it knows it.
struct Task;
using TaskPtr = std::shared_ptr<Task>;

/// Gives tasks to processes, and notices which of these end. Defined by the library.
class TaskDesk;
using DeskPtr = std::shared_ptr<TaskDesk>;

using TaskTime = std::chrono::nanoseconds;

/// What messages call a task: "item 3 of Pool::map".
struct TaskLabel {
  const char* call;
  std::size_t first = 0;  ///< Item.
  std::size_t count = 0;  ///< Items; 0: the call has none.
};

/// What a task runs; `type` serves messages only.
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

/// Blocking: while as many tasks are under way as the desk takes.
/// Errors: Closed; what keeps the desk's processes from running; SharedMemoryExhausted.
TaskPtr give_task(TaskDesk& desk, const TaskFunction& function, Encoded payload, const TaskLabel& label);

/// Items of one chunk, where the caller doesn't say.
std::size_t chunk_size_for(TaskDesk& desk, std::size_t items);
/// Tasks that keep all processes busy while results are looked at.
std::size_t tasks_ahead(TaskDesk& desk);

/// Waits until all of them are done; false: not in time. Errors: SystemError if the job's guardian was killed.
bool wait_for_all(TaskDesk& desk, std::span<const TaskPtr> tasks, TaskTime timeout);
/// Waits until one of them is done, and gives its index; tasks.size(): not in time.
std::size_t wait_for_any(TaskDesk& desk, std::span<const TaskPtr> tasks, TaskTime timeout);

/// What a task that is done returned, as long as the task is there. Errors: the task's failure.
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
