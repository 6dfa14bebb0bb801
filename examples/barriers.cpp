// Three programs of two or more ranks that only wait for each other.
// [includes]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"
// [/includes]

namespace {

using Seconds = std::chrono::duration<double>;

/// At once, for all to see in which order the ranks come here.
void say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

// [places]
/// A rank's n-th barrier meets the others' n-th, wherever in the program they are.
void meet(retinue::RankContext& context) {
  retinue::Communicator group(context.world());
  if (context.rank() != 0) {
    say(fmt::format("rank {}: first before", context.rank()));
    group.barrier();
    say(fmt::format("rank {}: first after", context.rank()));
  } else {
    say("rank 0: second before");
    group.barrier();
    say("rank 0: second after");
  }
}
// [/places]

// [late]
/// A barrier takes as long as its last rank.
void wait_for_late_one(retinue::RankContext& context, double seconds) {
  retinue::Communicator group(context.world());
  const auto start = std::chrono::steady_clock::now();
  if (context.rank() == 1) std::this_thread::sleep_for(Seconds(seconds));
  group.barrier();
  const auto first = std::chrono::steady_clock::now();
  group.barrier();
  const auto second = std::chrono::steady_clock::now();
  say(fmt::format("rank {}: {:.1f} s, then {:.1f} s", context.rank(), Seconds(first - start).count(),
                  Seconds(second - first).count()));
}
// [/late]

// [lost]
/// A rank that has returned won't come: who waits for it learns that at once.
void wait_for_lost_one(retinue::RankContext& context, double seconds) {
  retinue::Communicator group(context.world());
  std::this_thread::sleep_for(Seconds(context.rank() == 1 ? seconds : seconds * 3 / 5));
  group.barrier();
  if (context.rank() == 1) return;
  try {
    group.barrier();
  } catch (const retinue::PeerLost& lost) {
    say(fmt::format("rank {}: {}", context.rank(), lost.what()));
  }
}
// [/lost]

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  CLI::App app("Barriers between ranks.");
  app.require_subcommand(1);
  int nprocs = 2;
  double seconds = 5;
  app.add_option("-n,--nprocs", nprocs, "ranks")->check(CLI::Range(2, 64));
  app.add_option("--seconds", seconds, "how late rank 1 is")->check(CLI::Range(0.0, 60.0));
  app.add_subcommand("meet", "a barrier in two places");
  app.add_subcommand("late", "a barrier that one rank reaches late");
  app.add_subcommand("lost", "a barrier that one rank never reaches");
  CLI11_PARSE(app, argc, argv);
  if (app.got_subcommand("meet")) retinue::spawn<meet>({.nprocs = nprocs});
  if (app.got_subcommand("late")) retinue::spawn<wait_for_late_one>({.nprocs = nprocs}, seconds);
  if (app.got_subcommand("lost")) retinue::spawn<wait_for_lost_one>({.nprocs = nprocs}, seconds);
}
