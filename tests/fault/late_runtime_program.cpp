// Makes its Runtime only when it is started by hand: executed ranks end without one.
#include <cstdio>
#include <cstdlib>

#include "retinue/launch/spawn.h"

namespace {

void never(retinue::RankContext&) {
  std::printf("started\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (std::getenv("RANK") != nullptr) return 0;
  retinue::Runtime runtime(argc, argv);
  try {
    retinue::spawn<never>({.nprocs = 2, .start_method = retinue::StartMethod::kSpawn});
  } catch (const retinue::ProcessRaisedException& error) {
    std::printf("%s\n", error.what());
    return 7;
  }
  return 0;
}
