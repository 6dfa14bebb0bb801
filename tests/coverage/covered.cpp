// Two ranks that execute a line which the program itself doesn't. Argument: the start method.
#include <string>

#include "retinue/launch/spawn.h"

void work_in_library();

namespace {

volatile int work_done = 0;

void work(retinue::RankContext&) {
  work_done = 1;  // in ranks alone, of the program
#ifdef HAS_LIBRARY
  work_in_library();
#endif
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  const std::string method = argc > 1 ? argv[1] : "";
  const retinue::StartMethod start = method == "spawn"  ? retinue::StartMethod::kSpawn
                                     : method == "fork" ? retinue::StartMethod::kFork
                                                        : retinue::StartMethod::kForkserver;
  retinue::spawn<work>({.nprocs = 2, .start_method = start});
}
