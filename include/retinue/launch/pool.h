#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "retinue/base/never.h"
#include "retinue/launch/future.h"
#include "retinue/launch/pool_options.h"
#include "retinue/launch/result_stream.h"

namespace retinue {
namespace detail {

/// Result of a pool's calls that take a function among their arguments, which none does.
template <class... Given>
struct NeedsFunction {
  static_assert(kNever<Given...>,
                "the function is a template argument: write pool.apply<fn>(arguments...) and pool.map<fn>(items)");
};

}  // namespace detail

/// Processes that run functions of this program, named after Python's multiprocessing.Pool.
///
/// Functions are template arguments, functions or captureless lambdas, as spawn() takes them; arguments, items and
/// results are as spawn() takes them, so tensors, queues, locks and shared values, too. A
/// worker that dies is replaced, and what it had in hand is reported as lost, or run again where `retries` say so;
/// nothing runs twice otherwise. There are no helper threads: whoever gives a task, or waits in the Pool, a Future or a
/// ResultStream, sees to that, so a worker that dies while nobody does is replaced only when somebody does again.
///
/// Destroying it is terminate() and waits for the workers' end, as long as the stop policy says.
/// Blocking: giving a task, while 1024 are under way.
/// Threads: all functions, from any thread of the process that made it.
/// Errors: UsageError in another process than that, or without a Runtime; Closed from all that give tasks after close()
/// or terminate(). When an initializer fails, all functions throw what it threw, or how the worker ended.
class Pool {
 public:
  using Time = std::chrono::nanoseconds;

  /// Starts the workers and returns at once. Errors: UsageError for wrong options and in a daemonic process, so in a
  /// Pool's worker, too; SystemError when no processes can be started.
  explicit Pool(const PoolOptions& options = {});
  template <std::integral Workers>
  explicit Pool(Workers) {
    static_assert(detail::kNever<Workers>, "a Pool takes options: write Pool pool({.processes = 4})");
  }
  ~Pool();
  Pool(Pool&&) noexcept;
  Pool& operator=(Pool&&) noexcept;

  /// Runs `fn(arguments...)` in a worker.
  template <auto fn, class... Arguments>
  Future<detail::TaskResult<fn>> apply_async(Arguments&&... arguments) {
    using Result = detail::TaskResult<fn>;
    const detail::DeskPtr to = desk();
    detail::Encoded encoded = detail::encode<fn, detail::EntryStyle::kProcess>(std::forward<Arguments>(arguments)...);
    return {to,
            {detail::give_task(*to, detail::task_function<fn>(), std::move(encoded), {"Pool::apply"})},
            &detail::task_value<Result>};
  }
  template <auto fn, class... Arguments>
  detail::TaskResult<fn> apply(Arguments&&... arguments) {
    return apply_async<fn>(std::forward<Arguments>(arguments)...).get();
  }

  /// `fn(item)` for each of `items`, a range; of several parameters, each item is a tuple of them. The results have
  /// the items' order. When some fail, all chunks are finished but the rest of theirs, and the error of the first
  /// failed item is thrown.
  template <auto fn, class Items = std::vector<detail::TaskItem<fn>>>
  Future<detail::MapResult<detail::TaskResult<fn>>> map_async(const Items& items, const MapOptions& options = {}) {
    const auto count = static_cast<std::size_t>(std::ranges::distance(items));
    const std::size_t chunk = chunk_of(options, count);
    std::vector<detail::TaskPtr> tasks;
    auto at = std::ranges::begin(items);
    for (std::size_t first = 0; first < count; first += chunk) {
      const std::size_t size = std::min(chunk, count - first);
      detail::ChunkOutput<detail::TaskItem<fn>> part(detail::AfterError::kStop);
      if constexpr (detail::CopiedRowOf<const Items, detail::TaskItem<fn>>) {
        part.add_row({std::to_address(at), size});
        at += static_cast<std::ptrdiff_t>(size);
      } else {
        part.reserve(size);
        for (std::size_t i = 0; i < size; ++i, ++at) part.add(*at);
      }
      tasks.push_back(
          detail::give_task(*desk(), detail::chunk_function<fn>(), std::move(part).take(), {"Pool::map", first, size}));
    }
    return {desk(), std::move(tasks), &detail::map_values<detail::TaskResult<fn>>};
  }
  template <auto fn, class Items = std::vector<detail::TaskItem<fn>>>
  detail::MapResult<detail::TaskResult<fn>> map(const Items& items, const MapOptions& options = {}) {
    return map_async<fn>(items, options).get();
  }

  /// As map, but gives results one after the other and takes items when it needs them: `items` may be endless, and, if
  /// it is no temporary, must stay. Default of `chunk_size`: as map has it for ranges that know their size, else 1.
  template <auto fn, class Items = std::vector<detail::TaskItem<fn>>>
  ResultStream<detail::TaskResult<fn>> imap(Items&& items, const MapOptions& options = {}) {
    return stream<fn>(std::forward<Items>(items), options, detail::TaskStream::Order::kOfItems, "Pool::imap");
  }
  /// The same in the order in which results come.
  template <auto fn, class Items = std::vector<detail::TaskItem<fn>>>
  ResultStream<detail::TaskResult<fn>> imap_unordered(Items&& items, const MapOptions& options = {}) {
    return stream<fn>(std::forward<Items>(items), options, detail::TaskStream::Order::kOfResults,
                      "Pool::imap_unordered");
  }

  // Without a function as template argument.
  template <class... Given>
  detail::NeedsFunction<Given...> apply(Given&&...) {
    return {};
  }
  template <class... Given>
  detail::NeedsFunction<Given...> apply_async(Given&&...) {
    return {};
  }
  template <class... Given>
  detail::NeedsFunction<Given...> map(Given&&...) {
    return {};
  }
  template <class... Given>
  detail::NeedsFunction<Given...> map_async(Given&&...) {
    return {};
  }
  template <class... Given>
  detail::NeedsFunction<Given...> imap(Given&&...) {
    return {};
  }
  template <class... Given>
  detail::NeedsFunction<Given...> imap_unordered(Given&&...) {
    return {};
  }

  /// Workers from now on: more are started at once; of more than that, those that are free first end when they have
  /// finished what they have in hand. Errors: UsageError for less than 1.
  void resize(int processes);
  int size() const;
  /// Process ids of the workers that run now.
  std::vector<int> pids() const;

  /// No more tasks; the workers end when all are done.
  void close();
  /// Ends the workers by the stop policy at once; tasks that are not done fail with Closed.
  void terminate();
  /// Waits until all workers have ended. Errors: UsageError before close() or terminate().
  void join();
  /// False when they have not in time.
  bool join(Time timeout);

  class Impl;

 private:
  const detail::DeskPtr& desk() const;
  Impl& impl() const;
  std::size_t chunk_of(const MapOptions& options, std::size_t items) const {
    return options.chunk_size != 0 ? options.chunk_size : detail::chunk_size_for(*desk(), items);
  }

  template <auto fn, class Items>
  auto stream(Items&& items, const MapOptions& options, detail::TaskStream::Order order, const char* call);

  detail::DeskPtr desk_;
};

template <auto fn, class Items>
auto Pool::stream(Items&& items, const MapOptions& options, detail::TaskStream::Order order, const char* call) {
  static_assert(!std::is_void_v<detail::TaskResult<fn>>, "the function returns nothing to iterate over: use map");
  std::size_t chunk = options.chunk_size != 0 ? options.chunk_size : 1;
  if constexpr (std::ranges::sized_range<Items>) chunk = chunk_of(options, std::ranges::size(items));
  using Source = std::views::all_t<Items>;
  // Shared, since a std::function is copied; iterators stay where their range is.
  struct State {
    Source source;
    std::optional<std::ranges::iterator_t<Source>> at;
  };
  auto state = std::make_shared<State>(State{std::views::all(std::forward<Items>(items)), std::nullopt});
  const auto feed = [state, chunk](std::size_t& count) -> std::optional<detail::Encoded> {
    if (!state->at) state->at.emplace(std::ranges::begin(state->source));
    detail::ChunkOutput<detail::TaskItem<fn>> part(detail::AfterError::kGoOn);
    for (auto& at = *state->at; part.count() < chunk && at != std::ranges::end(state->source); ++at) part.add(*at);
    count = part.count();
    if (count == 0) return std::nullopt;
    return std::move(part).take();
  };
  return ResultStream<detail::TaskResult<fn>>(
      detail::TaskStream(desk(), detail::chunk_function<fn>(), order, call, feed));
}

}  // namespace retinue
