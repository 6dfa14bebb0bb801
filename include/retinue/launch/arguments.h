#pragma once

#include <charconv>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace retinue {

/// The arguments of a program, each converted to text: Arguments{"-n", 3} is -n 3. A value is text, a path, a number, a
/// bool (true or false), or a range of these: std::vector{1, 2} is the one argument "[1, 2]". Numbers have the digits
/// that are needed to read the same number back, the same in every locale.
class Arguments {
 public:
  Arguments() = default;
  template <class... Values>
  requires(!(sizeof...(Values) == 1 && (std::is_same_v<std::decay_t<Values>, Arguments> && ...)))
      Arguments(Values&&... values)  // NOLINT(google-explicit-constructor): reads as a list.
      : texts_{text_of(std::forward<Values>(values))...} {}

  const std::vector<std::string>& texts() const noexcept { return texts_; }

 private:
  /// char, signed and unsigned integers, and floating-point numbers; no wide characters.
  template <class Value>
  static constexpr bool is_number = requires(char* digits, Value value) {
    std::to_chars(digits, digits, value);
  };

  template <class Value>
  static std::string number_text(Value value) {
    char digits[128];
    std::to_chars_result end{};
    if constexpr (std::is_floating_point_v<Value>) {
      const Value size = value < 0 ? -value : value;
      const bool is_short = size == 0 || (size >= Value(1e-4) && size < Value(1e16));
      end = std::to_chars(digits, digits + sizeof digits, value,
                          is_short ? std::chars_format::fixed : std::chars_format::scientific);
    } else {
      end = std::to_chars(digits, digits + sizeof digits, value);
    }
    return std::string(digits, end.ptr);
  }

  template <class Value>
  static std::string text_of(const Value& value) {
    if constexpr (std::is_null_pointer_v<Value>) {
      static_assert(!std::is_null_pointer_v<Value>, "nullptr is no argument");
    } else if constexpr (std::is_convertible_v<const Value&, std::string>) {
      return value;
    } else if constexpr (std::is_convertible_v<const Value&, std::string_view>) {
      return std::string(std::string_view(value));
    } else if constexpr (std::is_same_v<Value, bool>) {
      return value ? "true" : "false";
    } else if constexpr (std::is_same_v<Value, char>) {
      return std::string(1, value);
    } else if constexpr (std::is_arithmetic_v<Value> && is_number<Value>) {
      return number_text(value);
    } else {
      static_assert(std::ranges::input_range<const Value>,
                    "an argument must be text, a path, a number, a bool, or a range of these");
      std::string text = "[";
      for (const std::ranges::range_value_t<const Value>& each : value)
        text += (text.size() == 1 ? "" : ", ") + text_of(each);
      return text + "]";
    }
  }

  std::vector<std::string> texts_;
};

}  // namespace retinue
