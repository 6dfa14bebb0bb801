// Removes its own executable and starts ranks then, as when a program is built anew while it runs.
#include <cstdio>
#include <filesystem>

#include "retinue/launch/spawn.h"

namespace {

void greet(retinue::RankContext& context) {
  std::printf("rank %d\n", context.rank());
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  std::filesystem::remove(argv[0]);
  for (const auto method :
       {retinue::StartMethod::kForkserver, retinue::StartMethod::kSpawn, retinue::StartMethod::kFork})
    retinue::spawn<greet>({.nprocs = 1, .start_method = method});
}
