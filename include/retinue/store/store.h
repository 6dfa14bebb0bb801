#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "retinue/base/deadline.h"

namespace retinue {

/// A table of keys and values through which processes meet: one sets a key, others wait for it. Keys and values are any
/// bytes.
///
/// Each call is atomic. A call without a deadline ends after timeout().
///
/// Blocking: get, multi_get and wait until all of their keys exist; the others until their store answers.
/// Threads: all functions, from any thread; a waiting call holds up no other.
/// Errors: TimeoutError, which names the keys that are not set; Closed if the store is gone, such as when the process
/// that serves it ended; SystemError.
/// After an error: after a timeout the table is unchanged. A call that changes the table may have been carried out
/// after Closed or SystemError, or after a TimeoutError that says so.
class Store {
 public:
  using Time = std::chrono::nanoseconds;

  /// The default timeout of PyTorch's stores.
  static constexpr std::chrono::seconds kDefaultTimeout{300};

  virtual ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  void set(std::string_view key, std::string_view value) { set(key, value, deadline()); }
  void set(std::string_view key, std::string_view value, Deadline deadline);

  std::string get(std::string_view key) { return get(key, deadline()); }
  std::string get(std::string_view key, Deadline deadline);

  /// Returns the values in the order of `keys`, all of one moment.
  std::vector<std::string> multi_get(const std::vector<std::string>& keys) { return multi_get(keys, deadline()); }
  std::vector<std::string> multi_get(const std::vector<std::string>& keys, Deadline deadline);

  /// Adds to the number that the key's value spells in decimal, 0 if there is no such key, and returns the sum.
  /// Errors: UsageError if the value is not a number, or the sum exceeds 64 bits; nothing has changed then.
  std::int64_t add(std::string_view key, std::int64_t delta) { return add(key, delta, deadline()); }
  std::int64_t add(std::string_view key, std::int64_t delta, Deadline deadline);

  /// Sets `desired` if the key's value is `expected`, or if there is no such key and `expected` is empty. Returns the
  /// value that is there now, so `desired` if it was set. If there still is no such key, returns `expected`, as PyTorch
  /// does.
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
    return compare_set(key, expected, desired, deadline());
  }
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired, Deadline deadline);

  void wait(const std::vector<std::string>& keys) { wait(keys, deadline()); }
  void wait(const std::vector<std::string>& keys, Time timeout) { wait(keys, Deadline::after(timeout)); }
  void wait(const std::vector<std::string>& keys, Deadline deadline);

  /// Returns whether all of the keys exist.
  bool check(const std::vector<std::string>& keys) { return check(keys, deadline()); }
  bool check(const std::vector<std::string>& keys, Deadline deadline);

  /// Deletes a key. Returns whether it existed.
  bool delete_key(std::string_view key) { return delete_key(key, deadline()); }
  bool delete_key(std::string_view key, Deadline deadline);

  std::int64_t num_keys() { return num_keys(deadline()); }
  std::int64_t num_keys(Deadline deadline);

  /// Returns the longest duration of calls without a deadline.
  Time timeout() const { return timeout_.load(std::memory_order_relaxed); }
  /// Sets the timeout. Errors: UsageError unless it is positive.
  void set_timeout(Time timeout);

  /// Returns the name of the store in messages.
  virtual std::string name() const = 0;

 protected:
  /// Errors: UsageError unless the timeout is positive.
  explicit Store(Time timeout);

 private:
  Deadline deadline() const { return Deadline::after(timeout()); }

  virtual void do_set(std::string_view key, std::string_view value, Deadline deadline) = 0;
  virtual std::vector<std::string> do_multi_get(const std::vector<std::string>& keys, Deadline deadline) = 0;
  virtual std::int64_t do_add(std::string_view key, std::int64_t delta, Deadline deadline) = 0;
  virtual std::string do_compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                     Deadline deadline) = 0;
  virtual void do_wait(const std::vector<std::string>& keys, Deadline deadline) = 0;
  virtual bool do_check(const std::vector<std::string>& keys, Deadline deadline) = 0;
  virtual bool do_delete_key(std::string_view key, Deadline deadline) = 0;
  virtual std::int64_t do_num_keys(Deadline deadline) = 0;

  std::atomic<Time> timeout_;  // Pairs with nothing: each call uses the value it reads.
};

}  // namespace retinue
