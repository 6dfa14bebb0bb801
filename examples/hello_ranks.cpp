// [program]
#include <fmt/format.h>

#include "retinue/collective/communicator.h"
#include "retinue/launch/spawn.h"

void hello(retinue::RankContext& context, int base) {
  retinue::Communicator group(context.world());
  int value = base + context.rank();
  group.all_reduce(std::span(&value, 1));
  fmt::print("rank {} of {}: the sum is {}\n", context.rank(), context.world_size(), value);
}

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);               // first line of main
  retinue::spawn<hello>({.nprocs = 4}, /*base=*/10);  // returns when all have ended, throws the first failure
}
// [/program]
