// A program that forgot its Runtime: must get an error, and must not start itself again and again.
#include <cstdio>

#include "retinue/launch/spawn.h"

namespace {

void never(retinue::RankContext&) {
  std::printf("started\n");
}

}  // namespace

int main() {
  try {
    retinue::spawn<never>({.nprocs = 2, .start_method = retinue::StartMethod::kSpawn});
  } catch (const retinue::UsageError& error) {
    std::printf("%s\n", error.what());
    return 7;
  }
  return 0;
}
