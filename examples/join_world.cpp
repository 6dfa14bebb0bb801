// A program whose ranks anybody may start: mpirun, srun, torchrun, `retinue run`, or people in several terminals.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <span>

#include "retinue/collective/communicator.h"
#include "retinue/launch/join_world.h"

namespace {

// [join]
void step_together(const retinue::WorldOptions& options) {
  retinue::Communicator world(retinue::join_world(options));
  int sum = world.rank();
  world.all_reduce(std::span(&sum, 1));
  fmt::print("rank {} of {}: the sum of all ranks is {}\n", world.rank(), world.size(), sum);
}
// [/join]

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Makes one world of ranks that any launcher started.");
  retinue::WorldOptions options;
  app.add_option("--init-method", options.init_method, "env://, tcp://host:port or file:///path");
  app.add_option("--world-size", options.world_size, "number of ranks; default: from the environment");
  app.add_option("--rank", options.rank, "number of this rank; default: from the environment");
  CLI11_PARSE(app, argc, argv);
  step_together(options);
}
