// What starts processes, with arguments in places that are not theirs.
#include <string>
#include <vector>

#include "retinue/launch/pool.h"
#include "retinue/launch/process.h"
#include "retinue/launch/spawn.h"

void work(retinue::RankContext& context, int value);
int square(int x);

// Each sentence comes once in a source: a compiler says the same of the same instantiation once.
void refused(retinue::Pool& workers, const std::vector<std::string>& texts) {
  const retinue::Pool pool(4);                               // refused: write Pool pool({.processes = 4})
  retinue::spawn<work>(2, 7);                                // refused: write spawn<fn>({.nprocs = 2}, arguments...)
  retinue::spawn(2, [](int) {});                             // refused: write spawn({.nprocs = 2}, closure)
  retinue::spawn({.nprocs = 2}, [](const std::string&) {});  // refused: int rank, and captures everything else
  retinue::spawn({.nprocs = 2}, work, 7);                    // refused: a function with arguments as template argument
  retinue::Process process(square, 3);                       // refused: as in Process<fn> process(arguments...)
  static_cast<void>(workers.apply(square, 3));               // refused: pool.apply<fn>(arguments...)
  static_cast<void>(workers.map(square, texts));             // refused: pool.map<fn>(items)
  static_cast<void>(workers.map<square>(texts));  // refused: an item must be convertible to the function's argument
  retinue::start_processes({}, retinue::Program{.file = "true"});  // refused: write start_processes({}, {program})
}
