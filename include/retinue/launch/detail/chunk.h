#pragma once

#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "retinue/launch/detail/task.h"

/// How a chunk of items becomes a task. Used by Pool; not used directly.
namespace retinue::detail {

/// The exception of one item of a chunk.
struct ItemError {
  std::uint64_t index = 0;  ///< In the chunk.
  TaskReport report;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(index, report);
  }
};

template <class Result>
struct ChunkValues {
  std::vector<Result> values;
  void skip() { values.emplace_back(); }
};
template <>
struct ChunkValues<void> {
  void skip() {}
};

/// What a chunk does after an item's exception.
enum class AfterError : std::uint8_t { kStop, kGoOn };

template <auto fn, std::size_t... kIndices>
void run_item(RankContext& context, TaskItem<fn>& item, ChunkValues<TaskResult<fn>>& results,
              std::index_sequence<kIndices...> all) {
  const auto invoke = [&](TaskArguments<fn>& arguments) -> TaskResult<fn> {
    return invoke_entry<fn, EntryStyle::kProcess>(context, arguments, all);
  };
  const auto keep = [&](TaskArguments<fn>& arguments) {
    if constexpr (std::is_void_v<TaskResult<fn>>) {
      invoke(arguments);
    } else {
      results.values.push_back(invoke(arguments));
    }
  };
  if constexpr (std::is_same_v<TaskItem<fn>, TaskArguments<fn>>) {
    keep(item);
  } else {
    TaskArguments<fn> arguments(std::move(item));
    keep(arguments);
  }
}

/// Ranges whose items are copied as one row.
template <class Items, class Item>
concept CopiedRowOf =
    kIsPlain<Item> && std::ranges::contiguous_range<Items> && std::is_same_v<std::ranges::range_value_t<Items>, Item>;

/// Archives the items of a chunk one after the other, each at once, because a range may make the next in the same
/// place.
template <class Item>
class ChunkOutput {
 public:
  explicit ChunkOutput(AfterError after) { output_(static_cast<std::uint8_t>(after)); }

  /// Announces the number of items that add() will be given.
  void reserve(std::size_t items) {
    if constexpr (kIsPlain<Item>) row_.reserve(items);
  }
  /// Adds all items at once. They must remain valid until take().
  void add_row(std::span<const Item> items) requires kIsPlain<Item> {
    given_ = items;
    count_ = items.size();
  }

  template <class Given>
  void add(Given&& item) {
    ++count_;
    constexpr bool kFits = std::is_constructible_v<Item, Given>;
    static_assert(kFits,
                  "an item must be convertible to the function's argument, or be a std::tuple of all its arguments");
    if constexpr (kFits && kIsPlain<Item>) {
      row_.push_back(static_cast<Item>(std::forward<Given>(item)));
    } else if constexpr (kFits) {
      output_(kFollows);
      write_converted<Item>(output_, std::forward<Given>(item));
    }
  }
  std::size_t count() const { return count_; }
  Encoded take() && {
    if constexpr (kIsPlain<Item>)
      write_row(output_, given_.empty() ? std::span<const Item>(row_) : given_);
    else
      output_(kEnd);
    return std::move(output_).take();
  }

  static std::vector<Item> read(ValueInput& input) {
    if constexpr (kIsPlain<Item>) {
      return read_row<Item>(input);
    } else {
      const ReadScope scope;
      std::vector<Item> items;
      for (std::uint8_t what = kEnd; input(what), what == kFollows;) {
        Item item{};
        read_argument(input, item);
        items.push_back(std::move(item));
      }
      return items;
    }
  }

 private:
  static constexpr std::uint8_t kEnd = 0;
  static constexpr std::uint8_t kFollows = 1;

  ValueOutput output_{Purpose::kCall};
  std::span<const Item> given_;
  std::vector<Item> row_;
  std::size_t count_ = 0;
};

/// Calls the function for each item of a chunk.
template <auto fn>
ReturnedValue chunk_thunk(RankContext& context, std::string_view archive) {
  using Result = TaskResult<fn>;
  if constexpr (!std::is_void_v<Result>) MustTravel<Result>();
  ValueInput input(archive, Purpose::kCall);
  std::uint8_t after = 0;
  input(after);
  std::vector<TaskItem<fn>> items = ChunkOutput<TaskItem<fn>>::read(input);
  ChunkValues<Result> results;
  std::vector<ItemError> errors;
  constexpr auto kAll = std::make_index_sequence<std::tuple_size_v<TaskArguments<fn>>>();
  if constexpr (!std::is_void_v<Result>) results.values.reserve(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    try {
      run_item<fn>(context, items[i], results, kAll);
    } catch (...) {
      errors.push_back({i, report_current_exception()});
      if (after == static_cast<std::uint8_t>(AfterError::kStop)) break;
      results.skip();
    }
  }
  ValueOutput output(Purpose::kCall);
  output(errors);
  if constexpr (!std::is_void_v<Result>) write_row(output, results.values);
  return {{}, std::move(output).take()};
}

}  // namespace retinue::detail
