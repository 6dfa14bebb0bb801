// Has two ranks that it forked itself, writes their pids as ints to standard output, and executes something else.
#include <unistd.h>

#include "retinue/launch/spawn.h"

namespace {

void stay(retinue::RankContext&) {
  for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  const retinue::ProcessContext ranks =
      retinue::spawn<stay>({.nprocs = 2, .start_method = retinue::StartMethod::kFork, .join = false});
  const std::vector<int> pids = ranks.pids();
  if (write(1, pids.data(), pids.size() * sizeof(int)) < 0) return 1;
  execl("/bin/sleep", "sleep", "infinity", nullptr);
  return 2;
}
