#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace retinue {

/// The arguments of a program, each converted to text as fmt formats it: Arguments{"-n", 3} is -n 3, and
/// Arguments{std::vector{1, 2}} is the one argument "[1, 2]".
class Arguments {
 public:
  Arguments() = default;
  template <class... Values>
  requires(!(sizeof...(Values) == 1 && (std::is_same_v<std::decay_t<Values>, Arguments> && ...)))
      Arguments(Values&&... values)  // NOLINT(google-explicit-constructor): reads as a list.
      : texts_{text_of(std::forward<Values>(values))...} {}

  const std::vector<std::string>& texts() const noexcept { return texts_; }

 private:
  template <class Value>
  static std::string text_of(const Value& value) {
    if constexpr (std::is_convertible_v<const Value&, std::string>) {
      return value;
    } else if constexpr (std::is_same_v<Value, std::filesystem::path>) {
      return value.string();
    } else {
      static_assert(fmt::is_formattable<Value>::value,
                    "an argument must be text, or of a type that fmt can format: give it a fmt::formatter");
      return fmt::format("{}", value);
    }
  }

  std::vector<std::string> texts_;
};

}  // namespace retinue
