// What CMake tries to link src/base/fmt_library.cpp with.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  const std::string text = fmt::format("{} {:.3f} {:L} {:#x} {:>8}", argc, 0.5 * argc, argc, 255u, argv[0]);
  fmt::print(stdout, "{} {}\n", fmt::vformat("{}", fmt::make_format_args(text)),
             fmt::join(std::vector{1.5f, 2.5f}, ","));
  fmt::print(stderr, "{:%H:%M}\n", fmt::gmtime(std::time_t{0}));
  return 0;
}
