// A program with ranks, for tests that kill it: prints "ready" when all ranks run, then waits for its end.
#include <unistd.h>

#include <cstdio>
#include <string>

#include "retinue/launch/spawn.h"

namespace {

void announce_and_wait(retinue::RankContext&, int leave_grandchild) {
  if (leave_grandchild != 0 && fork() == 0) {
    setsid();
    for (;;) pause();
  }
  std::printf("rank\n");
  for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  const std::string method = argc > 1 ? argv[1] : "forkserver";
  const retinue::StartMethod start = method == "spawn"  ? retinue::StartMethod::kSpawn
                                     : method == "fork" ? retinue::StartMethod::kFork
                                                        : retinue::StartMethod::kForkserver;
  const int grandchild = argc > 2 && std::string(argv[2]) == "grandchild" ? 1 : 0;
  retinue::spawn<announce_and_wait>({.nprocs = 2, .start_method = start}, grandchild);
}
