#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "retinue/launch/detail/task_client.h"

namespace retinue {

namespace detail {

/// The part of a ResultStream that doesn't depend on types.
class TaskStream {
 public:
  enum class Order { kOfItems, kOfResults };
  /// Returns the next chunk and its number of items, or nothing if there is none.
  using Feed = std::function<std::optional<Encoded>(std::size_t& items)>;

  TaskStream(TaskClientPtr client, TaskFunction function, Order order, const char* call, Feed feed)
      : client_(std::move(client)), function_(function), order_(order), call_(call), feed_(std::move(feed)) {}

  /// Gives as many tasks as keep the processes busy.
  void feed();
  /// Returns the next chunk that is done, or nullptr if there are no more. Errors: TimeoutError.
  TaskPtr next(TaskTime timeout);

 private:
  void feed_if_possible() noexcept;

  TaskClientPtr client_;
  TaskFunction function_;
  Order order_;
  const char* call_;
  Feed feed_;
  bool is_fed_ = false;
  std::size_t given_ = 0;  ///< Items.
  std::vector<TaskPtr> pending_;
  std::exception_ptr trouble_;
};

}  // namespace detail

/// A stream of the results of Pool::imap and imap_unordered, read one after the other while workers run the next items.
///
/// It takes no more items from its source than keep the workers busy, and takes them when results are requested.
/// Destroying it drops the results; tasks that are running are finished.
/// Threads: one at a time.
/// Errors: an item's error, as from Future::get(), when its turn comes; the next call continues with the next item.
template <class T>
class ResultStream {
 public:
  using Time = std::chrono::nanoseconds;

  explicit ResultStream(detail::TaskStream tasks) : tasks_(std::move(tasks)) { tasks_.feed(); }

  /// Waits for the next result. Returns nothing after the last one.
  std::optional<T> next() { return next(Time::max()); }
  /// Errors: also TimeoutError if there is none in time.
  std::optional<T> next(Time timeout) {
    while (at_ == values_.size()) {
      task_ = tasks_.next(timeout);
      if (task_ == nullptr) return std::nullopt;
      at_ = 0;
      values_.clear();
      detail::ValueInput input(detail::result_of(*task_), detail::Purpose::kCall);
      errors_.clear();
      input(errors_);
      values_ = detail::read_row<T>(input);
      next_error_ = 0;
    }
    const std::size_t item = at_++;
    if (next_error_ < errors_.size() && errors_[next_error_].index == item)
      detail::throw_item_failure(*task_, errors_[next_error_++]);
    return std::move(values_[item]);
  }

  /// An iterator for range-for; an item's error leaves the loop.
  class Iterator {
   public:
    using value_type = T;
    using difference_type = std::ptrdiff_t;

    Iterator() = default;
    explicit Iterator(ResultStream& stream) : stream_(&stream) { ++*this; }
    const T& operator*() const { return *value_; }
    const T* operator->() const { return &*value_; }
    Iterator& operator++() {
      value_ = stream_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& a, std::default_sentinel_t) { return !a.value_.has_value(); }

   private:
    ResultStream* stream_ = nullptr;
    std::optional<T> value_;
  };
  Iterator begin() { return Iterator(*this); }
  std::default_sentinel_t end() const { return {}; }

 private:
  detail::TaskStream tasks_;
  detail::TaskPtr task_;
  std::vector<T> values_;
  std::vector<detail::ItemError> errors_;
  std::size_t at_ = 0;
  std::size_t next_error_ = 0;
};

}  // namespace retinue
