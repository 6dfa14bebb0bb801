// Says which rank it is, for programs that are started below a rank. Arguments: what to do, then what that needs.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "retinue/launch/runtime.h"

namespace {

void print(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void sum_up(const retinue::RankContext& context, const std::string& name) {
  retinue::Communicator group(context.world());
  int sum = context.rank() + 1;
  group.all_reduce(std::span(&sum, 1));
  print(fmt::format("{}: rank {} of {}, sum {}", name, context.rank(), context.world_size(), sum));
}

/// Says on the first pipe that it is there, and stays until the second one's end.
void stay(const std::string& told, const std::string& until) {
  std::ofstream(told) << "there\n";
  std::ifstream end(until);
  while (end.get() != EOF) continue;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string what = argv[1];
  retinue::Runtime runtime(argc, argv);
  if (what == "die") _exit(9);
  const retinue::RankContext context = runtime.rank_context();
  if (what == "stay") stay(argv[2], argv[3]);
  if (what == "sum") sum_up(context, argv[2]);
  if (what == "join") retinue::Communicator group(context.world());
  if (what == "below") return std::system((std::string(argv[0]) + " sum below").c_str()) == 0 ? 0 : 1;
  if (what == "barrier") {
    retinue::Communicator group(context.world());
    group.barrier();
  }
} catch (const retinue::PeerLost& error) {
  print(fmt::format("PeerLost: {}", error.what()));
  return 3;
} catch (const retinue::Error& error) {
  print(fmt::format("error: {}", error.what()));
  return 4;
}
