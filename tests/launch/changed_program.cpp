// Starts ranks after it did to itself, behind its Runtime, what its first argument says. Arguments: that, a start
// method. Prints what its ranks say, or the error that it gets.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/launch/spawn.h"

namespace {

void say_rank(retinue::RankContext& context) {
  fmt::print("rank {} of {}\n", context.rank(), context.world_size());
}

void do_nothing(int /*rank*/) {}

void stay(int /*rank*/) {
  for (;;) pause();
}

void start_without_joining(const retinue::SpawnOptions& options) {
  std::vector<retinue::ProcessContext> contexts;
  for (int i = 0; i < 600; ++i) contexts.push_back(retinue::spawn<do_nothing>(options));
}

/// The guardian may not be there yet at the first "closed", and is there at "closed later".
void change(const std::string& how, const retinue::SpawnOptions& options) {
  if (how == "closed later") retinue::spawn<do_nothing>(options);
  if (how == "closed" || how == "closed later") close_range(3, ~0u, 0);
  if (how == "closed beside ranks") {
    retinue::ProcessContext ranks = retinue::spawn<stay>({.start_method = options.start_method, .join = false});
    close_range(3, ~0u, 0);
    ranks.join();
  }
  if (how == "daemon" && daemon(1, 1) != 0) throw retinue::SystemError("daemon", errno);
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  const std::string how = argc > 1 ? argv[1] : "";
  const std::string method = argc > 2 ? argv[2] : "forkserver";
  retinue::SpawnOptions options = {.nprocs = 2};
  if (method == "spawn") options.start_method = retinue::StartMethod::kSpawn;
  if (method == "fork") options.start_method = retinue::StartMethod::kFork;
  try {
    change(how, options);
    if (how == "unjoined") {
      // Hundreds end at a time; under a sanitizer each looks for leaks then.
      start_without_joining(
          {.start_method = options.start_method, .join = false, .exit_grace = std::chrono::minutes(5)});
    } else {
      retinue::spawn<say_rank>(options);
    }
  } catch (const retinue::UsageError& error) {
    fmt::print("UsageError: {}\n", error.what());
  } catch (const retinue::Error& error) {
    fmt::print("error: {}\n", error.what());
  }
}
