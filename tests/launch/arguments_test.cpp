// The text that a program gets for a value.
#include "retinue/launch/arguments.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <list>
#include <locale>
#include <string>
#include <string_view>
#include <vector>

namespace {

/// Writes 1,234 for 1234, as many locales of people do.
struct Grouped : std::numpunct<char> {
  char do_thousands_sep() const override { return ','; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(Arguments, AreTextAsItIs) {
  const std::string text = "a b";
  EXPECT_EQ(
      retinue::Arguments(text, "*", std::string_view("x\ty").substr(0, 1), std::filesystem::path("/a b/c")).texts(),
      (std::vector<std::string>{"a b", "*", "x", "/a b/c"}));
  EXPECT_EQ(retinue::Arguments('c', true, false).texts(), (std::vector<std::string>{"c", "true", "false"}));
  EXPECT_TRUE(retinue::Arguments().texts().empty());
  retinue::Arguments copied("literal");
  const retinue::Arguments copy = copied;  // NOLINT(performance-unnecessary-copy-initialization)
  EXPECT_EQ(copy.texts(), std::vector<std::string>{"literal"});
}

TEST(Arguments, AreNumbersThatAreReadBack) {
  const std::int64_t least = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(retinue::Arguments(3, -3L, std::uint8_t{200}, least).texts(),
            (std::vector<std::string>{"3", "-3", "200", fmt::format("{}", least)}));
  for (const double value :
       {0.1, 1.0, 1e-300, 123456.789, 100000.0, 1e15, 1e16, 1e20, -2.5e-4, 9e-5, -0.0, 1e308, HUGE_VAL})
    EXPECT_EQ(retinue::Arguments(value).texts().front(), fmt::format("{}", value));
  EXPECT_EQ(retinue::Arguments(0.1, 0.1f, 2.5).texts(), (std::vector<std::string>{"0.1", "0.1", "2.5"}));
}

TEST(Arguments, AreRanges) {
  const int numbers[] = {1, 2};
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Grouped));
  const retinue::Arguments arguments(std::vector<int>{1, 2000}, std::vector<std::string>{}, numbers,
                                     std::vector<bool>{true, false}, std::vector{std::vector{1}, std::vector{2, 3}},
                                     std::list<std::string>{"a", "b c"}, 5000);
  std::locale::global(before);
  EXPECT_EQ(arguments.texts(), (std::vector<std::string>{"[1, 2000]", "[]", "[1, 2]", "[true, false]", "[[1], [2, 3]]",
                                                         "[a, b c]", "5000"}));
}

}  // namespace
