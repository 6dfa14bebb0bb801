#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace retinue {

/// Writes one value as Python's pickle.load() reads it (protocol 2).
///
/// Lists, dicts and tuples are opened and closed; what is put in between is in them, of a dict keys and values in turn.
class Pickle {
 public:
  Pickle() : bytes_("\x80\x02") {}

  Pickle& open_dict() { return add("}("); }
  Pickle& close_dict() { return add("u"); }
  Pickle& open_list() { return add("]("); }
  Pickle& close_list() { return add("e"); }
  Pickle& open_tuple() { return add("("); }
  Pickle& close_tuple() { return add("t"); }

  Pickle& none() { return add("N"); }
  Pickle& truth(std::uint8_t value) { return add(value != 0 ? "\x88" : "\x89"); }
  Pickle& number(std::int64_t value);
  Pickle& real(double value);
  /// A text that comes again costs two to five bytes. What is no UTF-8 becomes '?'.
  Pickle& text(std::string_view value);

  /// The whole.
  std::string take() && { return std::move(bytes_) + "."; }

 private:
  Pickle& add(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }

  std::string bytes_;
  std::unordered_map<std::string, std::uint32_t> texts_;
};

}  // namespace retinue
