// What cli/CMakeLists.txt tries to link cli/fmt_library.cpp with.
#include <fmt/format.h>

#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  const std::string text = fmt::format("{} {:.3f} {:L} {:#x} {:>8}", argc, 0.5 * argc, argc, 255u, argv[0]);
  fmt::print(stdout, "{}\n", fmt::vformat("{}", fmt::make_format_args(text)));
  return 0;
}
