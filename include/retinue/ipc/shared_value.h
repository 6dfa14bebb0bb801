#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "retinue/ipc/detail/message_codec.h"
#include "retinue/ipc/lock.h"
#include "retinue/ipc/shared_block.h"

/// Values in job memory, each with a lock, as Python's multiprocessing.Value and Array.
namespace retinue {

namespace detail {

/// A block with a lock at its start and space for values behind it. Not used directly.
class LockedValues {
 public:
  LockedValues() = default;
  /// `lock`: a lock used in place of its own, or none.
  LockedValues(const std::shared_ptr<JobMemory>& memory, std::uint64_t type, std::size_t count, std::size_t value_bytes,
               std::size_t align, const RLock& lock);

  /// Errors: UsageError if there are no values.
  std::byte* data() const;
  std::size_t bytes() const { return block_.bytes() - static_cast<std::size_t>(data() - block_.data()); }
  RLock& lock() const { return lock_; }
  explicit operator bool() const noexcept { return static_cast<bool>(block_); }
  bool is_same_as(const LockedValues& other) const noexcept { return block_ == other.block_; }

  template <class Archive>
  void save(Archive& archive) const {
    archive(block_, lock_);
  }
  template <class Archive>
  void load(Archive& archive) {
    archive(block_, lock_);
  }
  /// Errors: UsageError if the values are of another type, or are not all there.
  void check(std::uint64_t type, std::size_t least_bytes, std::size_t align) const;

 private:
  SharedBlock block_;
  mutable RLock lock_{nullptr};  ///< Locking it doesn't change a value.
};

[[noreturn]] void throw_bad_index(std::size_t index, std::size_t size);

}  // namespace detail

/// A T in job memory with a lock of its own or a shared one. T is trivially copyable. Copies are the same value. As an
/// argument of spawn, or in a message, it arrives as the same value.
///
/// Blocking: get, set and update wait for the lock.
/// Threads: all functions, from any thread of any process of the job; get_obj() under get_lock() only.
/// Errors: UsageError from all functions of a default-constructed value; its lock's errors.
template <class T>
class Value {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 4096,
                "processes share its bytes, so it must be trivially copyable");

 public:
  /// Makes an empty handle; assign a value later.
  Value() = default;
  /// Makes a value in the job of this process. Errors: SharedMemoryExhausted; UsageError without a Runtime.
  explicit Value(const T& initial, const RLock& lock = RLock(nullptr)) : Value(JobMemory::current(), initial, lock) {}
  Value(const std::shared_ptr<JobMemory>& memory, const T& initial, const RLock& lock = RLock(nullptr))
      : values_(memory, detail::type_hash<Value>(), 1, sizeof(T), alignof(T), lock) {
    new (values_.data()) T(initial);
  }

  T get() const {
    const std::lock_guard guard(get_lock());
    return get_obj();
  }
  void set(const T& value) const {
    const std::lock_guard guard(get_lock());
    get_obj() = value;
  }
  /// Calls `change(T&)` with the lock held, and returns its result.
  template <class Change>
  decltype(auto) update(Change&& change) const {
    const std::lock_guard guard(get_lock());
    return std::forward<Change>(change)(get_obj());
  }

  /// Returns the value in place, without the lock: the caller holds it, or doesn't need it.
  T& get_obj() const { return *std::launder(reinterpret_cast<T*>(values_.data())); }
  /// Returns the lock. It also reports whether its last holder died in the middle of a change.
  RLock& get_lock() const { return values_.lock(); }

  explicit operator bool() const noexcept { return static_cast<bool>(values_); }
  friend bool operator==(const Value& a, const Value& b) noexcept { return a.values_.is_same_as(b.values_); }

  template <class Archive>
  void save(Archive& archive) const {
    archive(values_);
  }
  template <class Archive>
  void load(Archive& archive) {
    archive(values_);
    values_.check(detail::type_hash<Value>(), sizeof(T), alignof(T));
  }

 private:
  detail::LockedValues values_;
};

/// An array of T in job memory with a lock, otherwise as Value<T>.
///
/// Blocking: get, set, values and update wait for the lock.
/// Threads: all functions, from any thread of any process of the job; get_obj() and [] under get_lock() only.
/// Errors: UsageError from all functions of a default-constructed array, and for an index beyond the end; its lock's
/// errors.
template <class T>
class Array {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 4096,
                "processes share its bytes, so it must be trivially copyable");

 public:
  /// Makes an empty handle; assign an array later.
  Array() = default;
  /// Makes an array of `size` zeros, or of copies of the given values, in the job of this process. Errors:
  /// SharedMemoryExhausted; UsageError without a Runtime.
  explicit Array(std::size_t size, const RLock& lock = RLock(nullptr)) : Array(JobMemory::current(), size, lock) {}
  Array(std::initializer_list<T> initial, const RLock& lock = RLock(nullptr))
      : Array(std::span<const T>(initial), lock) {}
  explicit Array(std::span<const T> initial, const RLock& lock = RLock(nullptr))
      : Array(JobMemory::current(), initial.size(), lock) {
    std::copy(initial.begin(), initial.end(), get_obj().begin());
  }
  Array(const std::shared_ptr<JobMemory>& memory, std::size_t size, const RLock& lock = RLock(nullptr))
      : values_(memory, detail::type_hash<Array>(), size, sizeof(T), alignof(T), lock) {
    for (std::size_t i = 0; i < size; ++i) new (values_.data() + i * sizeof(T)) T();
  }

  std::size_t size() const { return values_.bytes() / sizeof(T); }
  T get(std::size_t index) const {
    const std::lock_guard guard(get_lock());
    return checked(index);
  }
  void set(std::size_t index, const T& value) const {
    const std::lock_guard guard(get_lock());
    checked(index) = value;
  }
  /// Returns all values, as they were at one time.
  std::vector<T> values() const {
    const std::lock_guard guard(get_lock());
    const std::span<T> all = get_obj();
    return std::vector<T>(all.begin(), all.end());
  }
  /// Calls `change(std::span<T>)` with the lock held, and returns its result.
  template <class Change>
  decltype(auto) update(Change&& change) const {
    const std::lock_guard guard(get_lock());
    return std::forward<Change>(change)(get_obj());
  }

  /// Returns the values in place, without the lock: the caller holds it, or doesn't need it.
  std::span<T> get_obj() const { return {std::launder(reinterpret_cast<T*>(values_.data())), size()}; }
  T& operator[](std::size_t index) const { return get_obj()[index]; }
  /// Returns the lock. It also reports whether its last holder died in the middle of a change.
  RLock& get_lock() const { return values_.lock(); }

  explicit operator bool() const noexcept { return static_cast<bool>(values_); }
  friend bool operator==(const Array& a, const Array& b) noexcept { return a.values_.is_same_as(b.values_); }

  template <class Archive>
  void save(Archive& archive) const {
    archive(values_);
  }
  template <class Archive>
  void load(Archive& archive) {
    archive(values_);
    values_.check(detail::type_hash<Array>(), 0, alignof(T));
  }

 private:
  T& checked(std::size_t index) const {
    if (index >= size()) detail::throw_bad_index(index, size());
    return (*this)[index];
  }

  detail::LockedValues values_;
};

}  // namespace retinue
