#pragma once

#include <cereal/archives/binary.hpp>
#include <istream>
#include <sstream>
#include <streambuf>
#include <string>
#include <string_view>
#include <utility>

/// Values as archives, the form in which arguments and return values travel. Not called directly.
namespace retinue::detail {

/// Reads bytes where they lie, without a copy.
class ViewBuffer : public std::streambuf {
 public:
  explicit ViewBuffer(std::string_view bytes) {
    char* const begin = const_cast<char*>(bytes.data());
    setg(begin, begin, begin + bytes.size());
  }
};

template <class Value>
std::string encode_value(const Value& value) {
  std::ostringstream stream;
  cereal::BinaryOutputArchive output(stream);
  output(value);
  return std::move(stream).str();
}

/// Errors: cereal::Exception where the archive ends too early.
template <class Value>
void decode_value(std::string_view archive, Value& value) {
  ViewBuffer buffer(archive);
  std::istream stream(&buffer);
  cereal::BinaryInputArchive input(stream);
  input(value);
}

}  // namespace retinue::detail
