#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "retinue/ipc/archive.h"
#include "retinue/launch/detail/parameters.h"
#include "retinue/launch/rank_context.h"

/// How another process can run a function: by its address, as {object's build-id, offset}, and its arguments, as an
/// archive. Used by spawn, start_processes and Process; not called directly.
namespace retinue::detail {

/// What a function returned, as it is sent back; `type` is typeid's name, empty if nothing was returned.
struct ReturnedValue {
  std::string type;
  Encoded value;
};

using EntryThunk = ReturnedValue (*)(RankContext&, std::string_view archive);

/// The function that a rank runs in its process.
using RankBody = std::function<ReturnedValue(RankContext&)>;

template <class Result>
ReturnedValue returned_value(const Result& result) {
  return {typeid(Result).name(), encode_value<Result>(result, Purpose::kReturned)};
}

/// Identifies an entry in every process that runs the same binary. `type` is for error messages only.
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

/// Errors: UsageError if the thunk is in no loaded object.
EntryKey key_of(EntryThunk thunk, const char* type);
/// Errors: UsageError if this process has no object with that id.
EntryThunk find_entry(const EntryKey& key);

struct NotAFunction {};

/// Returns fn as a plain function pointer, for functions and captureless lambdas.
template <auto fn>
constexpr auto pointer_to() {
  if constexpr (requires { +fn; }) {
    return +fn;
  } else {
    return NotAFunction{};
  }
}

/// Replaces a function that was given as an argument of the call.
struct FunctionInArguments {};

template <class Pointer>
struct Signature {
  using Result = void;
  using List = ParameterList<>;
  static constexpr bool kIsFunction = false;
};
template <class Returned, class... Parameters>
struct Signature<Returned (*)(Parameters...)> {
  using Result = std::decay_t<Returned>;
  using List = ParameterList<Parameters...>;
  static constexpr bool kIsFunction = true;
};
template <class Returned, class... Parameters>
struct Signature<Returned (*)(Parameters...) noexcept> : Signature<Returned (*)(Parameters...)> {};

/// How the function is called: a rank's function gets its rank or context first; a Process's function may omit them.
enum class EntryStyle { kRank, kProcess };

template <auto fn, EntryStyle style>
struct Entry {
  using Function = Signature<decltype(pointer_to<fn>())>;
  using List = typename Function::List;
  using Result = typename Function::Result;
  static constexpr bool kTakesContext = List::kFirstIsContext;
  static constexpr bool kTakesRank = style == EntryStyle::kRank && List::kFirstIsInt;
  static constexpr bool kIsFunction = Function::kIsFunction;
  static constexpr bool kHasItsFirst = style == EntryStyle::kProcess || kTakesContext || kTakesRank;
  /// Whether it can be called. If it can't, exactly one of the messages below gives the reason.
  static constexpr bool kIsSound = kIsFunction && kHasItsFirst && List::kArePassable;

  using Given = std::remove_cvref_t<decltype(fn)>;
  static constexpr bool kIsMember = std::is_member_pointer_v<Given>;
  static constexpr bool kIsArgument = std::is_same_v<Given, FunctionInArguments>;
  using AllArguments =
      std::conditional_t<kTakesContext || kTakesRank, typename List::ValuesAfterFirst, typename List::Values>;
  using Arguments = std::conditional_t<kIsSound, AllArguments, std::tuple<>>;
  static_assert(!kIsMember,
                "a member function has no object in another process: give a function, or a captureless lambda, that "
                "takes or makes the object");
  static_assert(
      !kIsArgument,
      "the function is a template argument, and its arguments follow: as in Process<fn> process(arguments...) "
      "and spawn<fn>({.nprocs = 2}, arguments...)");
  static_assert(kIsFunction || kIsMember || kIsArgument,
                "give a function as template argument, or a captureless lambda whose parameters are not `auto`");
  static_assert(!kIsFunction || kHasItsFirst,
                "the function's first parameter must be retinue::RankContext& or int rank; a function without them "
                "runs as retinue::Process<fn>");
  static_assert(!kIsFunction || !kHasItsFirst || List::kArePassable,
                "the function's parameters must be values, const references or rvalue references: the arguments are "
                "copies in another process, so what the function changes there would be lost");
  static_assert(sizeof(MustAllTravel<Arguments>) != 0);
};

template <auto fn>
using ArgumentsOf = typename Entry<fn, EntryStyle::kRank>::Arguments;

/// A named function, not a lambda: stacks end here, and the symboliser recognises it by its name.
template <auto fn, EntryStyle style, std::size_t... kIndices>
typename Entry<fn, style>::Result invoke_entry(RankContext& context, typename Entry<fn, style>::Arguments& arguments,
                                               std::index_sequence<kIndices...>) {
  if constexpr (!Entry<fn, style>::kIsSound) {
    return typename Entry<fn, style>::Result();
  } else if constexpr (Entry<fn, style>::kTakesContext) {
    return pointer_to<fn>()(context, std::move(std::get<kIndices>(arguments))...);
  } else if constexpr (Entry<fn, style>::kTakesRank) {
    return pointer_to<fn>()(context.rank(), std::move(std::get<kIndices>(arguments))...);
  } else {
    return pointer_to<fn>()(std::move(std::get<kIndices>(arguments))...);
  }
}

/// Calls the function with the arguments in the archive.
template <auto fn, EntryStyle style>
typename Entry<fn, style>::Result call_entry(RankContext& context, std::string_view archive) {
  using Arguments = typename Entry<fn, style>::Arguments;
  std::optional<ReadScope> scope(std::in_place);
  Arguments arguments;
  ValueInput input(archive, Purpose::kCall);
  read_argument(input, arguments);
  scope.reset();
  return invoke_entry<fn, style>(context, arguments, std::make_index_sequence<std::tuple_size_v<Arguments>>());
}

template <auto fn, EntryStyle style>
ReturnedValue entry_thunk(RankContext& context, std::string_view archive) {
  using Result = typename Entry<fn, style>::Result;
  if constexpr (!Entry<fn, style>::kIsSound || std::is_void_v<Result> || style == EntryStyle::kProcess) {
    static_cast<void>(call_entry<fn, style>(context, archive));
    return {};
  } else {
    return returned_value<Result>(call_entry<fn, style>(context, archive));
  }
}

template <auto fn, EntryStyle style, class... Given>
Encoded encode(Given&&... given) {
  using Wanted = typename Entry<fn, style>::Arguments;
  static_assert(!Entry<fn, style>::kIsSound || sizeof...(Given) == std::tuple_size_v<Wanted>,
                "pass all of the function's arguments, except the RankContext& or int rank, which Retinue passes");
  if constexpr (sizeof...(Given) == std::tuple_size_v<Wanted>) {
    constexpr bool kConvertible = AreConvertible<Wanted, Given&&...>::value;
    static_assert(kConvertible, "an argument cannot be converted to the function's parameter in its place");
    if constexpr (kConvertible) {
      ValueOutput output(Purpose::kCall);
      write_converted(output, std::type_identity<Wanted>(), std::forward<Given>(given)...);
      return std::move(output).take();
    }
  }
  return {};
}

template <auto fn, EntryStyle style = EntryStyle::kRank>
EntryKey entry_key() {
  return key_of(&entry_thunk<fn, style>, __PRETTY_FUNCTION__);
}

}  // namespace retinue::detail
