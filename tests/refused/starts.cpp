// What starts processes, with arguments in places that are not theirs.
#include "retinue/launch/pool.h"
#include "retinue/launch/spawn.h"

void work(retinue::RankContext& context, int value);

void refused() {
  const retinue::Pool pool(4);                               // refused: write Pool pool({.processes = 4})
  retinue::spawn<work>(2, 7);                                // refused: write spawn<fn>({.nprocs = 2}, arguments...)
  retinue::spawn(2, [](int) {});                             // refused: write spawn({.nprocs = 2}, closure)
  retinue::spawn({.nprocs = 2}, [](const std::string&) {});  // refused: what else it needs it captures
}
