#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <thread>

#include "retinue/launch/runtime.h"
#include "run_command.h"

namespace {

/// -n: a number, or `auto` or `cpu` for one rank per CPU.
int count_of(const std::string& text) {
  if (text == "auto" || text == "cpu") return static_cast<int>(std::thread::hardware_concurrency());
  std::size_t used = 0;
  int count = 0;
  try {
    count = std::stoi(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used != text.size() || count < 1)
    throw CLI::ValidationError("--nproc-per-node", "'" + text + "' is no number of processes; give 1, 2, ... or auto");
  return count;
}

}  // namespace

int main(int argc, char** argv) try {
  retinue::Runtime runtime(argc, argv);
  CLI::App app("Starts and looks after programs of several processes.", "retinue");
  app.set_version_flag("--version", RETINUE_VERSION);
  app.require_subcommand(1);
  std::string count = "1";
  CLI::App* run = app.add_subcommand("run", "Start a program's ranks, with the environment that torchrun gives");
  run->add_option("-n,--nproc-per-node,--nproc_per_node", count, "Ranks on this host: a number, or auto")
      ->capture_default_str();
  run->prefix_command();
  run->footer("retinue run -n 2 ./program arguments...");
  try {
    app.parse(argc, argv);
    retinue::RunOptions options{count_of(count), run->remaining()};
    if (!options.command.empty() && options.command.front() == "--") options.command.erase(options.command.begin());
    if (options.command.empty()) throw CLI::RequiredError("the program to run");
    return retinue::run_command(options);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "retinue: %s\n", error.what());
  return 1;
}
