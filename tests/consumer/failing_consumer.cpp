#include <cstdio>
#include <stdexcept>

#include "retinue/launch/spawn.h"

namespace {

void fail(retinue::RankContext&) {
  throw std::runtime_error("the failure of the test");
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  try {
    retinue::spawn<fail>({.nprocs = 1});
  } catch (const retinue::ProcessRaisedException& error) {
    std::puts(error.what());
  }
}
