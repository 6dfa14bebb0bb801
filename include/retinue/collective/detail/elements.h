#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <ranges>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "retinue/base/detail/never.h"
#include "retinue/collective/types.h"

/// Defines which ranges are buffers of calls: those with contiguous elements that travel as bytes. Other ranges are
/// refused at compile time, with one sentence. Not for direct use.
namespace retinue::detail {

enum class BufferFault : std::uint8_t {
  kNone,
  kNoRange,
  kBits,
  kApart,
  kNoBytes,
  kConst,
  kTemporaryResult,
  kTemporaryBegun
};

template <class Range>
constexpr bool kHoldsBits = false;
template <class Allocator>
constexpr bool kHoldsBits<std::vector<bool, Allocator>> = true;

/// Returns what is wrong with a range that a call reads.
template <class Range>
constexpr BufferFault fault_of_data() {
  using Lvalue = std::remove_reference_t<Range>&;
  if constexpr (!std::ranges::range<Lvalue>)
    return BufferFault::kNoRange;
  else if constexpr (kHoldsBits<std::remove_cvref_t<Range>>)
    return BufferFault::kBits;
  else if constexpr (!std::ranges::contiguous_range<Lvalue> || !std::ranges::sized_range<Lvalue>)
    return BufferFault::kApart;
  else if constexpr (!std::is_trivially_copyable_v<std::ranges::range_value_t<Lvalue>>)
    return BufferFault::kNoBytes;
  else
    return BufferFault::kNone;
}

/// Returns what is wrong with a range that a call writes.
template <class Range>
constexpr BufferFault fault_of_result() {
  constexpr BufferFault fault = fault_of_data<Range>();  // NOLINT(readability-identifier-naming): a step of a function.
  if constexpr (fault != BufferFault::kNone)
    return fault;
  else if constexpr (std::is_const_v<
                         std::remove_reference_t<std::ranges::range_reference_t<std::remove_reference_t<Range>&>>>)
    return BufferFault::kConst;
  else if constexpr (!std::ranges::borrowed_range<Range>)
    return BufferFault::kTemporaryResult;
  else
    return BufferFault::kNone;
}

/// Returns `fault`, or what is wrong with a buffer whose call continues after it has returned.
template <BufferFault fault, class Range>
constexpr BufferFault fault_of_begun() {
  if constexpr (fault == BufferFault::kNone && !std::ranges::borrowed_range<Range>)
    return BufferFault::kTemporaryBegun;
  else
    return fault;
}

/// Rejects an unsuitable buffer, with one sentence for each fault.
template <BufferFault fault>
constexpr bool is_sound() {
  static_assert(fault != BufferFault::kNoRange,
                "a buffer must be a range, such as a std::vector, std::array, std::span or C array: for one value "
                "write std::span(&value, 1), for a pointer std::span(pointer, count)");
  static_assert(fault != BufferFault::kBits,
                "a std::vector<bool> holds bits, which can't be read and written as elements: use a "
                "std::vector<std::uint8_t>, or a std::span of bools");
  static_assert(fault != BufferFault::kApart,
                "the elements of a buffer must be contiguous, unlike those of a std::list, std::deque or view: copy "
                "them into a std::vector");
  static_assert(
      fault != BufferFault::kNoBytes,
      "elements are sent as bytes, so they must be trivially copyable: send values of other types with send_object, "
      "broadcast_object, all_gather_object and similar functions (retinue/collective/objects.h)");
  static_assert(fault != BufferFault::kConst, "the call writes into this buffer: it must not be const");
  static_assert(
      fault != BufferFault::kTemporaryResult,
      "the call writes into a temporary, which nobody can read afterwards: pass a variable, or a std::span of one");
  static_assert(fault != BufferFault::kTemporaryBegun,
                "isend and irecv use the buffer after they have returned, but this buffer is a temporary, which is "
                "gone then: pass a variable, or a std::span of one");
  return fault == BufferFault::kNone;
}

/// The result of overloads that take a list of values where calls write.
template <class T>
struct NeedsVariable {
  static_assert(kNever<T>, "the call writes into its buffer: pass a variable, not a list of values");
};

template <class Range>
using ElementOf = std::ranges::range_value_t<std::remove_reference_t<Range>&>;

/// Returns whether calls can read the range; otherwise, like all of these, it doesn't compile.
template <class Data>
constexpr bool can_give() {
  return is_sound<fault_of_data<Data>()>();
}
template <class Result>
constexpr bool can_take() {
  return is_sound<fault_of_result<Result>()>();
}
template <class Data>
constexpr bool can_give_later() {
  return is_sound<fault_of_begun<fault_of_data<Data>(), Data>()>();
}
template <class Result>
constexpr bool can_take_later() {
  return is_sound<fault_of_begun<fault_of_result<Result>(), Result>()>();
}

template <class Input, class Output>
constexpr bool can_move() {
  if constexpr (can_give<Input>() && can_take<Output>()) {
    constexpr bool kAreAlike = std::is_same_v<ElementOf<Input>, ElementOf<Output>>;
    static_assert(kAreAlike, "input and output must hold elements of the same type");
    return kAreAlike;
  } else {
    return false;
  }
}

template <class Input, class Output>
constexpr bool can_reduce() {
  if constexpr (can_move<Input, Output>()) {
    constexpr bool kHasDtype = requires {
      DtypeOf<ElementOf<Output>>::value;
    };
    static_assert(kHasDtype,
                  "this element type has no built-in reductions: pass a function of two elements, as in "
                  "all_reduce<fn>(data)");
    return kHasDtype;
  } else {
    return false;
  }
}

template <class Range>
auto elements_of(Range& range) {
  return std::span(std::ranges::data(range), std::ranges::size(range));
}

/// Returns ConstBytes or Bytes.
template <class Range>
auto bytes_of(Range& range) {
  const std::span elements = elements_of(range);
  if constexpr (std::is_const_v<std::remove_pointer_t<decltype(elements.data())>>)
    return std::as_bytes(elements);
  else
    return std::as_writable_bytes(elements);
}

/// Checks a size. Errors: UsageError if a buffer of `elements` should have `wanted`.
void check_elements(std::string_view call, std::size_t elements, std::size_t wanted);

/// The number of elements of each rank's part.
template <class Counts>
concept PartCounts = std::ranges::input_range<const Counts> && std::integral<std::ranges::range_value_t<const Counts>>;
/// The same as a list in braces.
using CountList = std::initializer_list<std::size_t>;

}  // namespace retinue::detail
