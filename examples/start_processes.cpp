// Functions and programs, each copy with arguments of its own.
// [includes]
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/launch/spawn.h"
// [/includes]

// [function]
void foo(retinue::RankContext&, const std::string& bar) {
  const char* color = std::getenv("COLOR");
  fmt::print("foo({}) {}\n", bar, color != nullptr ? color : "");
}

void run_functions() {
  retinue::start_processes<foo>({.name = "trainer"},
                                /*args=*/{{0, {"bar0"}}, {1, {"bar1"}}},
                                /*envs=*/{{0, {{"COLOR", "red"}}}, {1, {{"COLOR", "blue"}}}})
      .join();
}
// [/function]

void forget_a_rank() {
  try {
    retinue::start_processes<foo>({.name = "trainer"}, {{0, {"bar0"}}, {1, {"bar1"}}}, {{0, {{"COLOR", "red"}}}})
        .join();
  } catch (const retinue::UsageError& error) {
    fmt::print("{}\n", error.what());
  }
}

// [program]
void run_programs(const std::string& folder) {
  retinue::start_processes({.name = "touch", .directory = folder}, "touch", {{0, {"file1"}}, {1, {"file2"}}}).join();
  // Numbers and ranges become text: "echo 1 2 3" and "echo [1, 2, 3]".
  retinue::start_processes({.name = "echo"}, "echo", {{0, {1, 2, 3}}, {1, {std::vector{1, 2, 3}}}}).join();
}
// [/program]

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  const std::string folder = argc > 1 ? argv[1] : std::filesystem::temp_directory_path().string();
  run_functions();
  forget_a_rank();
  run_programs(folder);
}
