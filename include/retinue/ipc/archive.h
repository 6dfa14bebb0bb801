#pragma once

#include <cereal/cereal.hpp>
#include <cereal/types/array.hpp>
#include <cereal/types/complex.hpp>
#include <cereal/types/map.hpp>
#include <cereal/types/optional.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/tuple.hpp>
#include <cereal/types/unordered_map.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/vector.hpp>
#include <concepts>
#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "retinue/ipc/plain.h"
#include "retinue/ipc/shared_block.h"
#include "retinue/ipc/value_archive.h"

namespace at {
class Tensor;  // LibTorch's, which errors know by its name.
}

/// What travels, and values as archives: the form of arguments, return values and messages. Not called directly.
namespace retinue::detail {

/// Has only what cereal and the user say of a type.
class AnyOutput : public cereal::OutputArchive<AnyOutput, cereal::AllowEmptyClassElision> {};

template <std::same_as<ValueOutput> Output>
void CEREAL_SAVE_FUNCTION_NAME(Output& output, const std::filesystem::path& path) {
  output(path.native());
}
template <std::same_as<ValueInput> Input>
void CEREAL_LOAD_FUNCTION_NAME(Input& input, std::filesystem::path& path) {
  std::string text;
  input(text);
  path = std::move(text);
}

/// Structs of which nobody says how to archive them travel as they lie.
template <class T>
concept PlainClass = std::is_class_v<T> && !std::is_empty_v<T> && kIsPlain<T> &&
                     !cereal::traits::is_output_serializable<T, AnyOutput>::value;

template <std::same_as<ValueOutput> Output, PlainClass T>
void CEREAL_SAVE_FUNCTION_NAME(Output& output, const T& value) {
  output.write(&value, sizeof value);
}
template <std::same_as<ValueInput> Input, PlainClass T>
void CEREAL_LOAD_FUNCTION_NAME(Input& input, T& value) {
  input.read(static_cast<void*>(&value), sizeof value);
}

template <class T>
constexpr bool kIsArchived = cereal::traits::is_output_serializable<T, ValueOutput>::value&&
    cereal::traits::is_input_serializable<T, ValueInput>::value;

/// Whether it is a tensor whose archive was not included, or a container of such.
template <class T>
constexpr bool kLacksTensorArchive = false;
template <std::same_as<at::Tensor> T>
constexpr bool kLacksTensorArchive<T> = !kIsArchived<T>;
template <template <class...> class Container, class... Elements>
constexpr bool kLacksTensorArchive<Container<Elements...>> = (kLacksTensorArchive<Elements> || ...);

/// Whether a T that left one process can become one in another.
template <class T>
constexpr bool kTravels = (kIsPlain<T> || kIsArchived<T>)&&!kPointsElsewhere<T> && std::is_default_constructible_v<T> &&
                          !kLacksTensorArchive<T>;

/// Says so where the type is first named.
template <class T>
struct MustTravel {
  static_assert(!kLacksTensorArchive<T>,
                "tensors travel where their archive is known: #include \"retinue/torch/tensor_archive.h\"");
  static_assert(kTravels<T> || kLacksTensorArchive<T>,
                "a value for another process (argument, result, message, object) must be default-constructible, and "
                "trivially copyable without pointers, or what cereal can archive and read back: for a type of the "
                "standard library include cereal's header for it, give one of your own a serialize()");
};

template <class Value>
Encoded encode_value(const Value& value, Purpose purpose = Purpose::kValue) {
  MustTravel<Value>();
  ValueOutput output(purpose);
  if constexpr (kTravels<Value>) output(value);
  return std::move(output).take();
}

/// A value that is sent by `channel` as soon as it is encoded.
template <class Value, class Channel>
Encoded encode_message(const Value& value, Channel& channel) {
  MustTravel<Value>();
  ValueOutput output([&channel] { channel.announce(); });
  if constexpr (kTravels<Value>) output(value);
  return std::move(output).take();
}

/// Errors: cereal::Exception where the archive ends too early; UsageError where it refers to a block that is gone.
template <class Value>
void decode_value(std::string_view archive, Value& value) {
  MustTravel<Value>();
  ValueInput input(archive);
  if constexpr (kTravels<Value>) input(value);
}

}  // namespace retinue::detail

namespace retinue {

template <class Archive>
void SharedBlock::save(Archive& archive) const {
  static_assert(std::is_same_v<Archive, detail::ValueOutput>,
                "a SharedBlock travels between processes of a job only: as argument, return value or message");
  const BlockHandle named = handle();
  archive.write(&named, sizeof named);
  if (named) archive.refer_to(*this);
}

template <class Archive>
void SharedBlock::load(Archive& archive) {
  static_assert(std::is_same_v<Archive, detail::ValueInput>,
                "a SharedBlock travels between processes of a job only: as argument, return value or message");
  BlockHandle named;
  archive.read(&named, sizeof named);
  *this = named ? hold(JobMemory::current(), named) : SharedBlock();
}

}  // namespace retinue
