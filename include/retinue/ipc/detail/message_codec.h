#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/ipc/archive.h"

/// How values become messages: as they are in memory if that is possible. Not used directly.
namespace retinue::detail {

/// Vectors of plain values, and strings.
template <class T>
constexpr bool kIsPlainRow = false;
template <class V, class Allocator>
constexpr bool kIsPlainRow<std::vector<V, Allocator>> = kIsPlain<V>;
template <class C, class Traits, class Allocator>
constexpr bool kIsPlainRow<std::basic_string<C, Traits, Allocator>> = true;

/// Whether a row of V values arrives as a T.
template <class T, class V>
concept RowOf = kIsPlainRow<T> && std::is_same_v<typename T::value_type, std::remove_const_t<V>>;

/// Values that are a message of at most 8 bytes.
template <class T>
constexpr bool kIsWord = (kIsPlain<T> && sizeof(T) <= sizeof(std::uint64_t)) || std::is_same_v<T, bool>;

template <class T>
std::uint64_t word_of(const T& value) {
  MustTravel<T>();
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  return word;
}

/// The space for a message in its slot, if the user doesn't specify it.
template <class T>
constexpr std::size_t default_space() {
  constexpr std::size_t kMost = 1024;
  constexpr std::size_t kOfUnknownLength = 232;  // With its header, a slot of 256 bytes.
  if constexpr (kIsWord<T>) return sizeof(std::uint64_t);
  if constexpr (kIsPlain<T>) return sizeof(T) < kMost ? sizeof(T) : kMost;
  return kOfUnknownLength;
}

/// Returns a hash that is the same in all processes that run the same build.
template <class T>
std::uint64_t type_hash() {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char* c = typeid(T).name(); *c != '\0'; ++c)
    hash = (hash ^ static_cast<unsigned char>(*c)) * 0x100000001b3ull;
  return hash;
}

template <class T>
std::span<const std::byte> plain_bytes(const T& value) {
  MustTravel<T>();
  if constexpr (kIsPlainRow<T>) {
    return std::as_bytes(std::span(value.data(), value.size()));
  } else {
    return std::as_bytes(std::span(&value, 1));
  }
}

/// Errors: UsageError for bytes that can't be such a value; cereal::Exception from archives.
template <class T>
T value_of_bytes(std::span<const std::byte> bytes) {
  MustTravel<T>();
  [[maybe_unused]] const std::conditional_t<kIsPlainRow<T> || kIsPlain<T> || kIsWord<T>, int, ReadScope> scope{};
  T value{};
  if constexpr (kIsPlainRow<T>) {
    if (bytes.size() % sizeof(typename T::value_type) != 0)
      throw UsageError("a message does not consist of whole values of its type");
    value.resize(bytes.size() / sizeof(typename T::value_type));
    if (!bytes.empty()) std::memcpy(static_cast<void*>(value.data()), bytes.data(), bytes.size());
  } else if constexpr (kIsPlain<T> || kIsWord<T>) {
    if (bytes.size() < sizeof(T)) throw UsageError("a message is too short for its type");
    if constexpr (std::is_same_v<T, bool>) {
      value = bytes[0] != std::byte{0};  // A byte other than 0 and 1 in a bool would be undefined.
    } else {
      std::memcpy(static_cast<void*>(&value), bytes.data(), sizeof(T));
    }
  } else {
    decode_value({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, value);
  }
  return value;
}

}  // namespace retinue::detail
