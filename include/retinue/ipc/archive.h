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

#include "retinue/ipc/detail/plain.h"
#include "retinue/ipc/detail/value_archive.h"
#include "retinue/ipc/shared_block.h"

namespace at {
class Tensor;  // LibTorch's tensor, which errors recognise by its name.
}

/// Which values can be sent, and how they are archived: the form of arguments, return values and messages. Not called
/// directly.
namespace retinue::detail {

/// An archive that has only what cereal and the user define for a type.
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

/// Structs without an archiving function are sent as they are in memory.
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

/// Whether T is a tensor whose archive wasn't included, or a container of such tensors.
template <class T>
constexpr bool kLacksTensorArchive = false;
template <std::same_as<at::Tensor> T>
constexpr bool kLacksTensorArchive<T> = !kIsArchived<T>;
template <template <class...> class Container, class... Elements>
constexpr bool kLacksTensorArchive<Container<Elements...>> = (kLacksTensorArchive<Elements> || ...);

/// Whether a T can be sent from one process to another.
template <class T>
constexpr bool kTravels = (kIsPlain<T> || kIsArchived<T>)&&!kPointsElsewhere<T> && std::is_default_constructible_v<T> &&
                          !kLacksTensorArchive<T>;

/// Reports, where the type is first named, that it can't be sent.
template <class T>
struct MustTravel {
  static_assert(!kLacksTensorArchive<T>, "to send tensors, write #include \"retinue/torch/tensor_archive.h\"");
  static_assert(
      kTravels<T> || kLacksTensorArchive<T>,
      "a value for another process (argument, result, message, object) must be default-constructible, and either "
      "trivially copyable without pointers or a type that cereal can archive and read back: for a type of the standard "
      "library include cereal's header for it, for a type of your own write a serialize()");
};

template <class Value>
Encoded encode_value(const Value& value, Purpose purpose = Purpose::kValue) {
  MustTravel<Value>();
  ValueOutput output(purpose);
  if constexpr (kTravels<Value>) output(value);
  return std::move(output).take();
}

/// Encodes a value that is sent by `channel` as soon as it is encoded.
template <class Value, class Channel>
Encoded encode_message(const Value& value, Channel& channel) {
  MustTravel<Value>();
  ValueOutput output([&channel] { channel.announce(); });
  if constexpr (kTravels<Value>) output(value);
  return std::move(output).take();
}

/// Errors: cereal::Exception if the archive ends too early; UsageError if it refers to a block that no longer exists.
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
                "a SharedBlock can only be sent between processes of a job: as argument, return value or message");
  const BlockHandle named = handle();
  archive.write(&named, sizeof named);
  if (named) archive.refer_to(*this);
}

template <class Archive>
void SharedBlock::load(Archive& archive) {
  static_assert(std::is_same_v<Archive, detail::ValueInput>,
                "a SharedBlock can only be sent between processes of a job: as argument, return value or message");
  BlockHandle named;
  archive.read(&named, sizeof named);
  *this = named ? hold(JobMemory::current(), named) : SharedBlock();
}

}  // namespace retinue
