// A program whose two ranks wait in a function of their own, for commands that look at jobs: prints "ready" for each
// rank that is there; after their end it tries to start others, and prints how that went.
#include <unistd.h>

#include <cstdio>

#include "retinue/base/error.h"
#include "retinue/launch/spawn.h"

namespace {

[[gnu::noinline]] void wait_for_a_look() {
  std::printf("ready\n");
  std::fflush(stdout);
  for (;;) pause();
}

void wait_as_rank(retinue::RankContext&) {
  wait_for_a_look();
}

void do_nothing(retinue::RankContext&) {}

}  // namespace

int main(int argc, char** argv) {
  const retinue::Runtime runtime(argc, argv);
  retinue::spawn<wait_as_rank>({.nprocs = 2});
  try {
    retinue::spawn<do_nothing>({.nprocs = 2});
    std::printf("started others\n");
  } catch (const retinue::Error& error) {
    std::printf("%s\n", error.what());
  }
}
