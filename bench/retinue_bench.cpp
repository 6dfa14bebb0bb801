/// retinue-bench: measures Retinue, and the systems that users would pick instead, side by side in one run.
///
/// A collective's time runs from the entry of the last rank to the exit of the last rank, on the clock that all
/// processes of a host share, so that no rank's own delay counts. Every buffer is rewritten before and checked after
/// each call.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <map>
#include <optional>
#include <string>

#include "bench.h"
#include "busy_program.h"
#include "report.h"
#include "retinue/collective/communicator.h"
#include "retinue/collective/explain.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"

namespace {

using retinue::bench::Case;
using retinue::bench::Row;
using retinue::bench::Settings;

std::map<std::string, Case> all_cases() {
  std::map<std::string, Case> all = {
      {"barrier", retinue::bench::run_barrier},
      {"bounds", retinue::bench::run_bounds},
      {"checkpoint", retinue::bench::run_checkpoint},
      {"ddp", retinue::bench::run_ddp},
      {"diagnosis", retinue::bench::run_diagnosis},
      {"failure", retinue::bench::run_failure},
      {"init", retinue::bench::run_init},
      {"launch", retinue::bench::run_launch},
      {"loader", retinue::bench::run_loader},
      {"peer_lost", retinue::bench::run_peer_lost},
      {"pool", retinue::bench::run_pool},
      {"queue", retinue::bench::run_queue},
      {"recorder", retinue::bench::run_recorder},
      {"scale", retinue::bench::run_scale},
      {"spawn", retinue::bench::run_spawn},
      {"tee", retinue::bench::run_tee},
      {"train", retinue::bench::run_train},
  };
  for (auto& [name, run] : retinue::bench::data_cases()) all.emplace(name, std::move(run));
  return all;
}

const std::map<std::string, Case>& cases() {
  static const std::map<std::string, Case> all = all_cases();
  return all;
}

void print_paths(retinue::RankContext& context) {
  const retinue::Communicator group(context.world());
  if (context.rank() == 0) fmt::print("{}", retinue::explain_paths(group));
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  CLI::App app("Measures Retinue and other libraries (peers) side by side in one run.");
  Settings settings;
  std::string case_name;
  std::string json;
  auto* const which = app.add_option("case", case_name, "What to measure")->check(CLI::IsMember(cases()));
  app.add_option("--ranks", settings.ranks, "Ranks")->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--bytes", settings.bytes,
                 "Sizes, for collectives of a whole buffer or each rank's part: multiples of 4")
      ->delimiter(',');
  app.add_option("--rounds", settings.rounds, "Rounds of each contender")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--calls", settings.calls,
                 "Calls in a round of a barrier or collective, in place of as many as it takes")
      ->check(CLI::PositiveNumber);
  app.add_flag("--peers", settings.peers, "Measure the peers, too (install them with make peers)");
  app.add_flag("--busy", settings.beside_busy, "Run beside an unrelated program that keeps the last CPU busy");
  app.add_option("--json", json, "File for the rows");
  bool explain = false;
  app.add_flag("--explain", explain, "Print which path collectives take for which sizes, and why");
  CLI11_PARSE(app, argc, argv);
  if (!explain && !*which) return app.exit(CLI::RequiredError("case"));
  try {
    fmt::print("{}\n", retinue::bench::machine_line());
    if (explain) {
      retinue::spawn<print_paths>({.nprocs = settings.ranks});
      if (!*which) return 0;
    }
    std::optional<retinue::bench::BusyProgram> busy_program;
    if (settings.beside_busy) busy_program.emplace();
    const std::vector<Row> rows = cases().at(case_name)(settings);
    fmt::print("{}", retinue::bench::table(rows));
    if (!json.empty()) retinue::bench::write_json(rows, json);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "retinue-bench: {}\n", error.what());
    return 1;
  }
}
