// Has two ranks and a child that keeps every descriptor open, and writes their pids as three ints to standard output.
#include <unistd.h>

#include "retinue/launch/spawn.h"

namespace {

void stay(retinue::RankContext&) {
  for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  retinue::ProcessContext ranks = retinue::spawn<stay>({.nprocs = 2, .join = false});
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  const std::vector<int> started = ranks.pids();
  const int pids[] = {started[0], started[1], child};
  if (write(1, pids, sizeof pids) != sizeof pids) return 1;
  ranks.join();
}
