#pragma once

#include <cereal/cereal.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "retinue/base/error.h"

/// The archives of the index: numbers as they are in memory of little-endian machines, texts and lists after their
/// lengths of 64 bits. Checkpoints are files that later versions read, so this stays as it is.
namespace retinue {

class IndexOutput : public cereal::OutputArchive<IndexOutput, cereal::AllowEmptyClassElision> {
 public:
  IndexOutput() : OutputArchive(this) {}

  void write(const void* data, std::size_t size) { bytes_.append(static_cast<const char*>(data), size); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Errors: Error where the bytes end too early, or a length is greater than what is left.
class IndexInput : public cereal::InputArchive<IndexInput, cereal::AllowEmptyClassElision> {
 public:
  explicit IndexInput(std::string_view bytes) : InputArchive(this), left_(bytes) {}

  void read(void* data, std::size_t size) {
    check(size);
    std::memcpy(data, left_.data(), size);
    left_.remove_prefix(size);
  }
  void check(std::uint64_t size) const {
    if (size > left_.size()) throw Error("its index ends too early");
  }

 private:
  std::string_view left_;
};

template <class T>
std::enable_if_t<std::is_arithmetic_v<T>> CEREAL_SAVE_FUNCTION_NAME(IndexOutput& output, const T& value) {
  output.write(&value, sizeof value);
}
template <class T>
std::enable_if_t<std::is_arithmetic_v<T>> CEREAL_LOAD_FUNCTION_NAME(IndexInput& input, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    std::uint8_t byte = 0;
    input.read(&byte, sizeof byte);
    value = byte != 0;
  } else {
    input.read(&value, sizeof value);
  }
}

template <class T>
void CEREAL_SAVE_FUNCTION_NAME(IndexOutput& output, const cereal::SizeTag<T>& tag) {
  const auto size = static_cast<std::uint64_t>(tag.size);
  output.write(&size, sizeof size);
}
/// Each element takes a byte at least.
template <class T>
void CEREAL_LOAD_FUNCTION_NAME(IndexInput& input, cereal::SizeTag<T>& tag) {
  std::uint64_t size = 0;
  input.read(&size, sizeof size);
  input.check(size);
  tag.size = static_cast<std::remove_reference_t<T>>(size);
}

template <class T>
void CEREAL_SAVE_FUNCTION_NAME(IndexOutput& output, const cereal::BinaryData<T>& data) {
  output.write(data.data, static_cast<std::size_t>(data.size));
}
template <class T>
void CEREAL_LOAD_FUNCTION_NAME(IndexInput& input, cereal::BinaryData<T>& data) {
  input.read(data.data, static_cast<std::size_t>(data.size));
}
template <class Archive, class T>
CEREAL_ARCHIVE_RESTRICT(IndexInput, IndexOutput)
CEREAL_SERIALIZE_FUNCTION_NAME(Archive& archive, cereal::NameValuePair<T>& pair) {
  archive(pair.value);
}

}  // namespace retinue

CEREAL_SETUP_ARCHIVE_TRAITS(retinue::IndexInput, retinue::IndexOutput)
