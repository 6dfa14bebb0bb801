// Shows its ranks' output line by line, for tests that kill it. A rank prints half a line, then says that it runs.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "retinue/launch/spawn.h"

namespace {

void print_and_wait(retinue::RankContext&, int lines) {
  for (int i = 0; i < lines; ++i) std::printf("line %d\n", i);
  std::printf("half a line");
  std::fflush(stdout);
  std::fprintf(stderr, "parent %d\n", getppid());
  for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  dup2(1, 2);
  const std::string method = argc > 1 ? argv[1] : "forkserver";
  const retinue::StartMethod start = method == "spawn"  ? retinue::StartMethod::kSpawn
                                     : method == "fork" ? retinue::StartMethod::kFork
                                                        : retinue::StartMethod::kForkserver;
  retinue::StartOptions options;
  options.start_method = start;
  options.log_dir = argc > 2 ? argv[2] : "";
  options.tee = retinue::Std::kAll;
  retinue::start_processes<print_and_wait>(options, {{0, {argc > 3 ? std::atoi(argv[3]) : 0}}}).join();
}
