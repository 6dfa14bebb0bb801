#pragma once

#include <cereal/archives/binary.hpp>
#include <cereal/types/map.hpp>
#include <cereal/types/optional.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/tuple.hpp>
#include <cereal/types/unordered_map.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/vector.hpp>
#include <cstdint>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "retinue/launch/rank_context.h"

/// How a function becomes something that another process can run: its address, as {object's build-id, offset}, and its
/// arguments, as an archive. Used by spawn and start_processes; not called directly.
namespace retinue::detail {

using EntryThunk = void (*)(RankContext&, const std::string& archive);

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

template <class Function>
struct Signature;

template <class Result, class First, class... Rest>
struct Signature<Result (*)(First, Rest...)> {
  using Arguments = std::tuple<std::decay_t<Rest>...>;
  static constexpr bool kTakesContext = std::is_same_v<std::decay_t<First>, RankContext>;
  static constexpr bool kTakesRank = std::is_same_v<First, int>;
};
template <class Result, class First, class... Rest>
struct Signature<Result (*)(First, Rest...) noexcept> : Signature<Result (*)(First, Rest...)> {};

/// fn as a plain function pointer: functions and captureless lambdas.
template <auto fn>
constexpr auto pointer_to() {
  return +fn;
}

template <auto fn>
using SignatureOf = Signature<decltype(pointer_to<fn>())>;

/// Named, not a lambda: stacks end here, and the symboliser knows it by its name.
template <auto fn, std::size_t... kIndices>
void invoke_entry(RankContext& context, typename SignatureOf<fn>::Arguments& arguments,
                  std::index_sequence<kIndices...>) {
  if constexpr (SignatureOf<fn>::kTakesContext) {
    pointer_to<fn>()(context, std::move(std::get<kIndices>(arguments))...);
  } else {
    pointer_to<fn>()(context.rank(), std::move(std::get<kIndices>(arguments))...);
  }
}

template <auto fn>
void entry_thunk(RankContext& context, const std::string& archive) {
  using Entry = SignatureOf<fn>;
  static_assert(Entry::kTakesContext || Entry::kTakesRank,
                "the function's first parameter must be retinue::RankContext& or int rank");
  typename Entry::Arguments arguments;
  std::istringstream stream(archive);
  cereal::BinaryInputArchive input(stream);
  input(arguments);
  invoke_entry<fn>(context, arguments, std::make_index_sequence<std::tuple_size_v<decltype(arguments)>>());
}

template <auto fn, class... Given>
std::string encode(Given&&... given) {
  using Wanted = typename SignatureOf<fn>::Arguments;
  static_assert(sizeof...(Given) == std::tuple_size_v<Wanted>,
                "pass the function's arguments after its first parameter, all of them");
  const auto packed = Wanted(std::forward<Given>(given)...);
  std::ostringstream stream;
  cereal::BinaryOutputArchive output(stream);
  output(packed);
  return std::move(stream).str();
}

}  // namespace retinue::detail
