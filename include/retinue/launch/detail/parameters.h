#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "retinue/ipc/archive.h"

namespace retinue {
class RankContext;
}

/// The values that a function's parameters take, and how arguments are archived and read back. Not used directly.
namespace retinue::detail {

/// Whether a parameter isn't a non-const reference. Its argument exists in the other process only, so a change is lost.
template <class Parameter>
constexpr bool kIsPassable =
    !std::is_lvalue_reference_v<Parameter> || std::is_const_v<std::remove_reference_t<Parameter>>;

template <class... Parameters>
struct ParameterList {
  using Values = std::tuple<>;
  using ValuesAfterFirst = std::tuple<>;
  static constexpr bool kFirstIsContext = false;
  static constexpr bool kFirstIsInt = false;
  static constexpr bool kArePassable = true;
};
template <class First, class... Rest>
struct ParameterList<First, Rest...> {
  using Values = std::tuple<std::decay_t<First>, std::decay_t<Rest>...>;
  using ValuesAfterFirst = std::tuple<std::decay_t<Rest>...>;
  static constexpr bool kFirstIsContext = std::is_same_v<std::decay_t<First>, RankContext>;
  static constexpr bool kFirstIsInt = std::is_same_v<std::decay_t<First>, int>;
  static constexpr bool kArePassable = (kFirstIsContext || kIsPassable<First>)&&(kIsPassable<Rest> && ...);
};

/// Arguments that the other process reads in place in job memory, for as long as the function runs.
template <class T>
constexpr bool kIsRow = std::is_same_v<T, std::string_view>;
template <class T>
constexpr bool kIsRow<std::span<const T>> = kIsPlain<T>&& std::is_default_constructible_v<T>;

template <class Tuple>
struct MustAllTravel;
template <class... Arguments>
struct MustAllTravel<std::tuple<Arguments...>> {
  template <class Argument>
  using Checked = std::conditional_t<kIsRow<Argument>, int, Argument>;
  static_assert(((sizeof(MustTravel<Checked<Arguments>>) != 0) && ...));
};

template <class T>
void write_argument(ValueOutput& output, const T& argument) {
  if constexpr (kIsRow<T>) {
    output(static_cast<std::uint64_t>(argument.size()));
    output.write(argument.data(), argument.size() * sizeof(typename T::value_type));
  } else if constexpr (kTravels<T>) {
    output(argument);
  }
}
template <class... Ts>
void write_argument(ValueOutput& output, const std::tuple<Ts...>& arguments) {
  std::apply([&](const Ts&... each) { (write_argument(output, each), ...); }, arguments);
}

/// Rows are valid as long as `input`.
template <class T>
void read_argument(ValueInput& input, T& argument) {
  if constexpr (kIsRow<T>) {
    std::uint64_t count = 0;
    input(count);
    const auto row = input.read_row<typename T::value_type>(count);
    argument = T(row.data(), row.size());
  } else if constexpr (kTravels<T>) {
    input(argument);
  }
}
template <class... Ts>
void read_argument(ValueInput& input, std::tuple<Ts...>& arguments) {
  std::apply([&](Ts&... each) { (read_argument(input, each), ...); }, arguments);
}

template <class Wanted, class... Given>
struct AreConvertible : std::false_type {};
template <class... Wanted, class... Given>
requires(sizeof...(Wanted) == sizeof...(Given)) struct AreConvertible<std::tuple<Wanted...>, Given...>
    : std::bool_constant<(std::is_convertible_v<Given, Wanted> && ...)> {
};

/// Doesn't copy a value that is already a Wanted. A value that was moved in is gone afterwards, as in any call: for
/// example, only the other process has a pipe's end then.
template <class Wanted, class Given>
void write_converted(ValueOutput& output, Given&& given) {
  if constexpr (std::is_same_v<Given, Wanted&> || std::is_same_v<Given, const Wanted&>)
    write_argument(output, std::as_const(given));
  else
    write_argument(output, static_cast<Wanted>(std::forward<Given>(given)));
}
template <class... Wanted, class... Given>
void write_converted(ValueOutput& output, std::type_identity<std::tuple<Wanted...>>, Given&&... given) {
  (write_converted<Wanted>(output, std::forward<Given>(given)), ...);
}

}  // namespace retinue::detail
