#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "retinue/ipc/archive.h"
#include "retinue/launch/rank_context.h"

/// How a function becomes something that another process can run: its address, as {object's build-id, offset}, and its
/// arguments, as an archive. Used by spawn, start_processes and Process; not called directly.
namespace retinue::detail {

/// What a function returned, on its way back; `type` is typeid's name, empty where nothing was returned.
struct ReturnedValue {
  std::string type;
  Encoded value;
};

using EntryThunk = ReturnedValue (*)(RankContext&, std::string_view archive);

/// What a rank runs in its process.
using RankBody = std::function<ReturnedValue(RankContext&)>;

template <class Result>
ReturnedValue returned_value(const Result& result) {
  return {typeid(Result).name(), encode_value<Result>(result, Purpose::kReturned)};
}

/// An entry's name in every process that runs the same binary. `type` serves messages only.
struct EntryKey {
  std::string object_id;
  std::string object_path;
  std::uint64_t offset = 0;
  std::string type;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(object_id, object_path, offset, type);
  }
};

/// Errors: UsageError when the thunk lies in no loaded object.
EntryKey key_of(EntryThunk thunk, const char* type);
/// Errors: UsageError when this process has no object with that id.
EntryThunk find_entry(const EntryKey& key);

struct NotAFunction {};

/// fn as a plain function pointer: functions and captureless lambdas.
template <auto fn>
constexpr auto pointer_to() {
  if constexpr (requires { +fn; }) {
    return +fn;
  } else {
    return NotAFunction{};
  }
}

/// A parameter's argument lives in the other process alone, so a change of it would be lost.
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

/// Arguments that the other process reads where they lie in job memory, for as long as the function runs.
template <class T>
constexpr bool kIsRow = std::is_same_v<T, std::string_view>;
template <class T>
constexpr bool kIsRow<std::span<const T>> = kIsPlain<T>;

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
  std::apply([&output](const Ts&... each) { (write_argument(output, each), ...); }, arguments);
}

/// Rows live as long as `input`.
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
  std::apply([&input](Ts&... each) { (read_argument(input, each), ...); }, arguments);
}

template <class Pointer>
struct Signature {
  static_assert(!std::is_same_v<Pointer, Pointer>,
                "give a function as template argument, or a captureless lambda whose parameters are not `auto`");
};
template <class Returned, class... Parameters>
struct Signature<Returned (*)(Parameters...)> {
  using Result = std::decay_t<Returned>;
  using List = ParameterList<Parameters...>;
};
template <class Returned, class... Parameters>
struct Signature<Returned (*)(Parameters...) noexcept> : Signature<Returned (*)(Parameters...)> {};

/// Who calls the function: ranks get their number or their context first, a Process may do without.
enum class EntryStyle { kRank, kProcess };

template <auto fn, EntryStyle style>
struct Entry {
  using Function = Signature<decltype(pointer_to<fn>())>;
  using List = typename Function::List;
  using Result = typename Function::Result;
  static constexpr bool kTakesContext = List::kFirstIsContext;
  static constexpr bool kTakesRank = style == EntryStyle::kRank && List::kFirstIsInt;
  static_assert(style == EntryStyle::kProcess || kTakesContext || kTakesRank,
                "the function's first parameter must be retinue::RankContext& or int rank; a function without them "
                "runs as retinue::Process<fn>");
  static_assert(List::kArePassable,
                "the function's parameters must be values, const references or rvalue references: the arguments are "
                "copies in another process, so what the function changes there would be lost");
  using Arguments =
      std::conditional_t<kTakesContext || kTakesRank, typename List::ValuesAfterFirst, typename List::Values>;
  static_assert(sizeof(MustAllTravel<Arguments>) != 0);
};

template <auto fn>
using ArgumentsOf = typename Entry<fn, EntryStyle::kRank>::Arguments;

/// Named, not a lambda: stacks end here, and the symboliser knows it by its name.
template <auto fn, EntryStyle style, std::size_t... kIndices>
typename Entry<fn, style>::Result invoke_entry(RankContext& context, typename Entry<fn, style>::Arguments& arguments,
                                               std::index_sequence<kIndices...>) {
  if constexpr (Entry<fn, style>::kTakesContext) {
    return pointer_to<fn>()(context, std::move(std::get<kIndices>(arguments))...);
  } else if constexpr (Entry<fn, style>::kTakesRank) {
    return pointer_to<fn>()(context.rank(), std::move(std::get<kIndices>(arguments))...);
  } else {
    return pointer_to<fn>()(std::move(std::get<kIndices>(arguments))...);
  }
}

template <auto fn, EntryStyle style>
ReturnedValue entry_thunk(RankContext& context, std::string_view archive) {
  using Result = typename Entry<fn, style>::Result;
  typename Entry<fn, style>::Arguments arguments;
  ValueInput input(archive, Purpose::kCall);
  read_argument(input, arguments);
  constexpr auto kAll = std::make_index_sequence<std::tuple_size_v<decltype(arguments)>>();
  if constexpr (std::is_void_v<Result>) {
    invoke_entry<fn, style>(context, arguments, kAll);
    return {};
  } else if constexpr (style == EntryStyle::kProcess) {
    static_cast<void>(invoke_entry<fn, style>(context, arguments, kAll));
    return {};
  } else {
    return returned_value<Result>(invoke_entry<fn, style>(context, arguments, kAll));
  }
}

template <class Wanted, class... Given>
struct AreConvertible : std::false_type {};
template <class... Wanted, class... Given>
requires(sizeof...(Wanted) == sizeof...(Given)) struct AreConvertible<std::tuple<Wanted...>, Given...>
    : std::bool_constant<(std::is_convertible_v<Given, Wanted> && ...)> {
};

/// What is a Wanted already is not copied.
template <class Wanted, class Given>
void write_converted(ValueOutput& output, Given&& given) {
  if constexpr (std::is_convertible_v<std::add_pointer_t<Given>, const Wanted*>)
    write_argument(output, static_cast<const Wanted&>(given));
  else
    write_argument(output, static_cast<Wanted>(std::forward<Given>(given)));
}
template <class... Wanted, class... Given>
void write_converted(ValueOutput& output, std::type_identity<std::tuple<Wanted...>>, Given&&... given) {
  (write_converted<Wanted>(output, std::forward<Given>(given)), ...);
}

template <auto fn, EntryStyle style, class... Given>
Encoded encode(Given&&... given) {
  using Wanted = typename Entry<fn, style>::Arguments;
  static_assert(sizeof...(Given) == std::tuple_size_v<Wanted>,
                "pass all of the function's arguments, without the RankContext& or int rank that it is given anyway");
  if constexpr (sizeof...(Given) == std::tuple_size_v<Wanted>) {
    static_assert(AreConvertible<Wanted, Given&&...>::value,
                  "an argument cannot be converted to the function's parameter in its place");
    ValueOutput output(Purpose::kCall);
    write_converted(output, std::type_identity<Wanted>(), std::forward<Given>(given)...);
    return std::move(output).take();
  }
}

template <auto fn, EntryStyle style = EntryStyle::kRank>
EntryKey entry_key() {
  return key_of(&entry_thunk<fn, style>, __PRETTY_FUNCTION__);
}

}  // namespace retinue::detail
