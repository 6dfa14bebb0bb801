#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "retinue/ipc/detail/message_codec.h"
#include "retinue/launch/detail/entry.h"

/// How a call of a function becomes a task that another process runs, and its result becomes a value again. Used by
/// Pool, Future and ProcessContext::call; not used directly.
namespace retinue::detail {

/// An exception that left a task's function, as the process that ran it reports it.
struct TaskReport {
  std::string type = {};
  std::string message = {};
  std::string stack = {};
  bool consequence = false;     ///< It only reports that another rank was lost.
  std::uint64_t thrown_ns = 0;  ///< CLOCK_MONOTONIC.

  template <class Archive>
  void serialize(Archive& archive) {
    archive(type, message, stack, consequence, thrown_ns);
  }
};

/// Call it in a catch block. Cost: tens of milliseconds the first time at a place in the program, for names in the
/// stack.
TaskReport report_current_exception();

template <auto fn>
using TaskEntry = Entry<fn, EntryStyle::kProcess>;
template <auto fn>
using TaskResult = typename TaskEntry<fn>::Result;
template <auto fn>
using TaskArguments = typename TaskEntry<fn>::Arguments;

template <class Tuple>
struct ItemOfArguments {
  using Type = Tuple;
};
template <class Only>
struct ItemOfArguments<std::tuple<Only>> {
  using Type = Only;
};
/// The item that map() takes for each call: the function's argument, or a tuple if the function has several.
template <auto fn>
using TaskItem = typename ItemOfArguments<TaskArguments<fn>>::Type;

template <class T>
void write_row(ValueOutput& output, std::span<const T> row) {
  output(static_cast<std::uint64_t>(row.size()));
  output.write(row.data(), row.size() * sizeof(T));
}
template <class T>
void write_row(ValueOutput& output, const std::vector<T>& row) {
  if constexpr (kIsPlain<T>) {
    write_row(output, std::span<const T>(row));
  } else {
    output(static_cast<std::uint64_t>(row.size()));
    for (const auto& each : row) write_argument(output, static_cast<const T&>(each));
  }
}

/// Errors: cereal::Exception if the archive ends too early.
template <class T>
std::vector<T> read_row(ValueInput& input) {
  std::uint64_t count = 0;
  input(count);
  input.check_length(count);
  const ReadScope scope;
  std::vector<T> row;
  if constexpr (kIsPlain<T>) {
    row.resize(count);
    input.read(static_cast<void*>(row.data()), count * sizeof(T));
  } else {
    row.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      T value{};
      read_argument(input, value);
      row.push_back(std::move(value));
    }
  }
  return row;
}

/// Runs one call.
template <auto fn>
ReturnedValue task_thunk(RankContext& context, std::string_view archive) {
  using Result = TaskResult<fn>;
  if constexpr (!std::is_void_v<Result>) MustTravel<Result>();
  ValueOutput output(Purpose::kCall);
  if constexpr (std::is_void_v<Result>) {
    call_entry<fn, EntryStyle::kProcess>(context, archive);
  } else {
    std::vector<Result> result;
    result.push_back(call_entry<fn, EntryStyle::kProcess>(context, archive));
    write_row(output, result);
  }
  return {{}, std::move(output).take()};
}

}  // namespace retinue::detail
