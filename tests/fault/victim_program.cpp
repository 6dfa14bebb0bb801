// A program with ranks, for tests that kill it: prints "ready" when all ranks run, then waits for its end.
#include <unistd.h>

#include <cstdio>
#include <string>

#include "retinue/launch/spawn.h"

namespace {

void announce_and_wait(retinue::RankContext&, int leave_grandchild) {
  if (leave_grandchild != 0 && fork() == 0) {
    setsid();
    std::printf("grandchild %d\n", getpid());
    const char* const bare[] = {"sleep", "100", nullptr};
    // Without a mark: no variable, no mapping.
    if (leave_grandchild == 2) execve("/bin/sleep", const_cast<char**>(bare), const_cast<char**>(bare + 2));
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
  const std::string wanted = argc > 2 ? argv[2] : "";
  const int grandchild = wanted == "grandchild" ? 1 : wanted == "bare grandchild" ? 2 : 0;
  retinue::spawn<announce_and_wait>({.nprocs = 2, .start_method = start}, grandchild);
}
