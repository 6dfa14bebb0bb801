// Where the output of ranks goes, and what is left of one that failed.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "retinue/launch/spawn.h"

// [logs]
void train(retinue::RankContext& context, int steps) {
  for (int step = 0; step < steps; ++step) {
    fmt::print("read batch {}\n", step);
    fmt::print("step {}: loss {}\n", step, 1.0 / (1 << step));
  }
  fmt::print(stderr, "rank {} is done\n", context.rank());
}

void train_with_logs(const std::string& log_dir) {
  using retinue::Std;
  retinue::start_processes<train>({.name = "trainer",
                                   .log_dir = log_dir,            // exists and is empty
                                   .redirects = Std::kErr,        // standard error: to its file only
                                   .tee = Std::kOut,              // standard output: to its file, and shown
                                   .console_ranks = {0},          // rank 0's only
                                   .console_filters = {"loss"}},  // lines with this text only
                                  {{0, {3}}, {1, {2}}})
      .join();
}
// [/logs]

// [failure]
void check(retinue::RankContext& context, int limit) {
  fmt::print(stderr, "checking rank {}\n", context.rank());
  if (context.rank() > limit) throw std::out_of_range(fmt::format("rank {} is beyond {}", context.rank(), limit));
}

void check_ranks(const std::string& log_dir) {
  retinue::ProcessContext ranks = retinue::start_processes<check>(
      {.name = "checker", .log_dir = log_dir, .redirects = retinue::Std::kAll}, {{0, {0}}, {1, {0}}});
  const retinue::RunResult result = ranks.wait();  // tells failures without throwing
  for (const retinue::RankOutcome& rank : result.failures()) {
    fmt::print("rank {}: {}: {}\n", rank.rank, rank.type, rank.message);
    std::string line;
    std::getline(std::ifstream(rank.stderr_log), line);
    fmt::print("its standard error: {}\n", line);
  }
}
// [/failure]

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  const std::filesystem::path folder = argc > 1 ? argv[1] : std::filesystem::temp_directory_path() / "retinue-example";
  for (const char* name : {"trained", "checked"}) std::filesystem::create_directories(folder / name);
  train_with_logs(folder / "trained");
  check_ranks(folder / "checked");
}
