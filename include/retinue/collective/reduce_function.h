#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace retinue {

/// A reduction by a function of the program, for elements of one type: reduce_function<fn, T>().
///
/// Members give the same function if it is at the same place of the same binary, in any process; otherwise they get
/// CollectiveMismatch. The result is that of the serial loop over ranks, fn(fn(x0, x1), x2) and so on; fn need neither
/// commute nor associate. Its bits are the same on all ranks if fn's are; padding bits of a struct may differ.
///
/// The function is called on any rank, any number of times, on values of any rank, so it must not depend on the process
/// or use the communicator. If it throws, the collective rethrows the exception on that rank and the group breaks. The
/// others throw PeerLost in this call, or in the next one if they no longer needed that rank.
class ReduceFunction {
 public:
  /// One array per rank, in rank order, and the destinations of the result. A destination may also be a source. No
  /// pointer needs alignment.
  struct Arrays {
    const void* const* sources;
    int source_count;
    void* const* destinations;
    int destination_count;
    std::size_t count;  ///< Number of elements.
  };
  using Kernel = void (*)(const Arrays&);

  /// Makes a reduction. `type` is the __PRETTY_FUNCTION__ of a template with `fn` as a parameter. Errors: UsageError if
  /// the kernel is in no loaded object.
  ReduceFunction(Kernel kernel, std::size_t element_bytes, std::string_view type);
  ReduceFunction(const ReduceFunction&) = delete;
  ReduceFunction& operator=(const ReduceFunction&) = delete;

  Kernel kernel() const { return kernel_; }
  std::size_t element_bytes() const { return element_bytes_; }
  /// Returns the name as the compiler writes it; for lambdas that shows no more than their types.
  const std::string& name() const { return name_; }
  std::uint64_t object() const { return object_; }  ///< Identifies the binary, by its build-id.
  std::uint64_t offset() const { return offset_; }  ///< Position in the binary.

 private:
  Kernel kernel_;
  std::size_t element_bytes_;
  std::string name_;
  std::uint64_t object_ = 0;
  std::uint64_t offset_ = 0;
};

namespace detail {

/// A value whose constructor isn't called, so that the element type needs none.
template <typename T>
union ElementRoom {
  ElementRoom() {}   // NOLINT(modernize-use-equals-default): it would be deleted.
  ~ElementRoom() {}  // NOLINT(modernize-use-equals-default)
  T value;
};

/// Number of elements reduced at a time: few enough for the nearest cache.
template <typename T>
constexpr std::size_t kReducedAtOnce = std::max<std::size_t>(1, 4096 / sizeof(T));

template <typename T>
struct ReductionRoom {
  ElementRoom<T> sums[kReducedAtOnce<T>];
  ElementRoom<T> next;
};

/// Sets sums[i] to fn(sums[i], element i of `from`).
template <auto fn, typename T>
void join_elements(ReductionRoom<T>& room, const std::byte* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if constexpr (sizeof(T) <= 256) {
      ElementRoom<T> next;
      std::memcpy(static_cast<void*>(&next), from + i * sizeof(T), sizeof(T));
      const T joined = fn(std::as_const(room.sums[i].value), std::as_const(next.value));
      std::memcpy(static_cast<void*>(&room.sums[i]), &joined, sizeof(T));
    } else {
      const auto* next = reinterpret_cast<const T*>(from + i * sizeof(T));
      if (reinterpret_cast<std::uintptr_t>(next) % alignof(T) != 0) {
        std::memcpy(static_cast<void*>(&room.next), next, sizeof(T));
        next = &room.next.value;
      }
      const T joined = fn(std::as_const(room.sums[i].value), *next);
      std::memcpy(static_cast<void*>(&room.sums[i]), &joined, sizeof(T));
    }
  }
}

template <auto fn, typename T>
void reduce_elements(ReductionRoom<T>& room, const ReduceFunction::Arrays& arrays) {
  for (std::size_t at = 0; at < arrays.count; at += kReducedAtOnce<T>) {
    const std::size_t count = std::min(kReducedAtOnce<T>, arrays.count - at);
    const auto source = [&](int i) { return static_cast<const std::byte*>(arrays.sources[i]) + at * sizeof(T); };
    std::memcpy(static_cast<void*>(room.sums), source(0), count * sizeof(T));
    for (int i = 1; i < arrays.source_count; ++i) join_elements<fn, T>(room, source(i), count);
    for (int i = 0; i < arrays.destination_count; ++i)
      std::memcpy(static_cast<std::byte*>(arrays.destinations[i]) + at * sizeof(T), room.sums, count * sizeof(T));
  }
}

template <auto fn, typename T>
void reduce_thunk(const ReduceFunction::Arrays& arrays) {
  if constexpr (sizeof(T) <= 4096) {
    ReductionRoom<T> room;
    reduce_elements<fn, T>(room, arrays);
  } else {
    // A stack may be small.
    const std::unique_ptr<ReductionRoom<T>> room(new ReductionRoom<T>);
    reduce_elements<fn, T>(*room, arrays);
  }
}

}  // namespace detail

/// Returns the reduction by `fn`, a function or a lambda without captures that makes one T of two: `T fn(const T&,
/// const T&)` or `T fn(T, T)`. The lower rank's value is the first argument.
template <auto fn, typename T>
const ReduceFunction& reduce_function() {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>,
                "elements are sent as bytes, so they must be trivially copyable");
  static_assert(std::is_invocable_r_v<T, decltype(fn), const T&, const T&>,
                "the reduction must be a function of two elements that returns one");
  static const ReduceFunction function(&detail::reduce_thunk<fn, T>, sizeof(T), __PRETTY_FUNCTION__);
  return function;
}

}  // namespace retinue
