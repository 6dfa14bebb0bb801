#include <cstdio>
#include <span>

#include "retinue/retinue.h"

namespace {

void sum_ranks(retinue::RankContext& context, double expected) {
  retinue::Communicator communicator(context.world());
  double value = context.rank() + 1.0;
  communicator.all_reduce(std::span<double>(&value, 1));
  if (value != expected) throw retinue::Error("all_reduce gave a wrong sum");
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  retinue::spawn<sum_ranks>({.nprocs = 2}, 3.0);
  std::puts("consumer: ok");
}
