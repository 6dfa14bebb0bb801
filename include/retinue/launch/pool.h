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

#include "retinue/base/detail/never.h"
#include "retinue/launch/detail/result_stream.h"
#include "retinue/launch/future.h"
#include "retinue/launch/pool_options.h"

namespace retinue {
namespace detail {

/// The result type of a pool's calls whose function is among their arguments instead of their template arguments.
template <class... Given>
struct NeedsFunction {
  static_assert(kNever<Given...>,
                "the function is a template argument: write pool.apply<fn>(arguments...) and pool.map<fn>(items)");
};

}  // namespace detail

/// Processes that run functions of this program, named after Python's multiprocessing.Pool.
///
/// Functions are template arguments: functions or captureless lambdas, as in spawn(). Arguments, items and results are
/// as in spawn(), so they include tensors, queues, locks and shared values. A worker that dies is replaced, and its
/// current task is reported as lost, or run again if `retries` allows it. Nothing runs twice otherwise. There are no
/// helper threads: a thread that gives a task, or waits in the Pool, a Future or a ResultStream, replaces dead workers,
/// so a worker that dies at another time is replaced at the next such call.
///
/// The destructor calls terminate() and waits for the workers' end, as long as the stop policy allows.
/// Blocking: giving a task, while 1024 are in progress.
/// Threads: all functions, from any thread of the process that made the Pool.
/// Errors: UsageError in another process, or without a Runtime; Closed if a task is given after close() or terminate().
/// If an initializer fails, all functions throw what it threw, or how the worker ended.
class Pool {
 public:
  using Time = std::chrono::nanoseconds;

  /// Starts the workers and returns at once. Errors: UsageError for invalid options and in a daemonic process, such as
  /// a Pool's worker; SystemError if no process can be started.
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
    const detail::TaskClientPtr to = client();
    detail::Encoded encoded = detail::encode<fn, detail::EntryStyle::kProcess>(std::forward<Arguments>(arguments)...);
    return {to,
            {detail::submit_task(*to, detail::task_function<fn>(), std::move(encoded), {"Pool::apply"})},
            &detail::task_value<Result>};
  }
  template <auto fn, class... Arguments>
  detail::TaskResult<fn> apply(Arguments&&... arguments) {
    return apply_async<fn>(std::forward<Arguments>(arguments)...).get();
  }

  /// Runs `fn(item)` for each item of the range `items`. If `fn` has several parameters, each item is a tuple of them.
  /// Results are in the order of the items. If items fail, the rest of their chunks is dropped, all other chunks are
  /// finished, and the error of the first failed item is thrown.
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
      tasks.push_back(detail::submit_task(*client(), detail::chunk_function<fn>(), std::move(part).take(),
                                          {"Pool::map", first, size}));
    }
    return {client(), std::move(tasks), &detail::map_values<detail::TaskResult<fn>>};
  }
  template <auto fn, class Items = std::vector<detail::TaskItem<fn>>>
  detail::MapResult<detail::TaskResult<fn>> map(const Items& items, const MapOptions& options = {}) {
    return map_async<fn>(items, options).get();
  }

  /// As map, but returns results one by one and takes items as needed: `items` may be endless, and must outlive the
  /// stream unless it is a temporary. Default of `chunk_size`: as for map if the range knows its size, else 1.
  template <auto fn, class Items = std::vector<detail::TaskItem<fn>>>
  ResultStream<detail::TaskResult<fn>> imap(Items&& items, const MapOptions& options = {}) {
    return stream<fn>(std::forward<Items>(items), options, detail::TaskStream::Order::kOfItems, "Pool::imap");
  }
  /// As imap, but in the order in which results arrive.
  template <auto fn, class Items = std::vector<detail::TaskItem<fn>>>
  ResultStream<detail::TaskResult<fn>> imap_unordered(Items&& items, const MapOptions& options = {}) {
    return stream<fn>(std::forward<Items>(items), options, detail::TaskStream::Order::kOfResults,
                      "Pool::imap_unordered");
  }

  // Calls without a function as template argument.
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

  /// Sets the number of workers. New ones start at once. Surplus ones end once their current task is finished, free
  /// workers first. Errors: UsageError for less than 1.
  void resize(int processes);
  int size() const;
  /// Returns the process ids of the workers that run now.
  std::vector<int> pids() const;

  /// Accepts no more tasks. The workers end when all tasks are done.
  void close();
  /// Ends the workers by the stop policy at once. Tasks that aren't done fail with Closed.
  void terminate();
  /// Waits until all workers have ended. Errors: UsageError before close() or terminate().
  void join();
  /// Returns false if they haven't ended in time.
  bool join(Time timeout);

  class Impl;

 private:
  const detail::TaskClientPtr& client() const;
  Impl& impl() const;
  std::size_t chunk_of(const MapOptions& options, std::size_t items) const {
    return options.chunk_size != 0 ? options.chunk_size : detail::chunk_size_for(*client(), items);
  }

  template <auto fn, class Items>
  auto stream(Items&& items, const MapOptions& options, detail::TaskStream::Order order, const char* call);

  detail::TaskClientPtr client_;
};

template <auto fn, class Items>
auto Pool::stream(Items&& items, const MapOptions& options, detail::TaskStream::Order order, const char* call) {
  static_assert(!std::is_void_v<detail::TaskResult<fn>>, "the function returns nothing to iterate over: use map");
  std::size_t chunk = options.chunk_size != 0 ? options.chunk_size : 1;
  if constexpr (std::ranges::sized_range<Items>) chunk = chunk_of(options, std::ranges::size(items));
  using Source = std::views::all_t<Items>;
  // Shared, because a std::function is copied; the iterators stay with their range.
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
      detail::TaskStream(client(), detail::chunk_function<fn>(), order, call, feed));
}

}  // namespace retinue
