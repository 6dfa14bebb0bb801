#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/version.h"
#include "command_line.h"
#include "completion.h"
#include "doctor.h"
#include "help.h"
#include "job_commands.h"
#include "manual_page.h"
#include "retinue/base/error.h"
#include "retinue/launch/runtime.h"
#include "retinue/os/detail/standard_error.h"
#include "run_command.h"
#include "run_flags.h"

namespace {

constexpr int kWrongUse = 2;  // As shells and Python have it.

/// The words after the command's name; `run` is one by whose flags the program's are kept apart.
struct Words {
  std::vector<std::string> ours;
  std::vector<std::string> program;
};

Words words_of(const CLI::App& run, int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words.empty() || words.front() != "run") return {words, {}};
  retinue::CommandLine line = retinue::split_command_line(run, {words.begin() + 1, words.end()});
  line.flags.insert(line.flags.begin(), words.front());
  return {line.flags, line.program};
}

void declare_other_commands(CLI::App& app, std::optional<retinue::JobCommands>& job_commands, std::string& shell) {
  app.add_subcommand("completion", "Print a script that completes commands and flags in a shell")
      ->add_option("shell", shell, "bash, zsh or fish")
      ->required();
  job_commands.emplace(app);
  app.add_subcommand("doctor", "Check what limits jobs on this machine, and print remedies");
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string command = argc > 1 ? argv[1] : "";
  // Before the Runtime, which cannot be made on a machine that is ill enough.
  if (argc == 2 && command == "doctor") return retinue::doctor_command();
  mallopt(M_ARENA_MAX, 1);  // Threads here allocate next to nothing: an arena would be 128 MiB to map and unmap.
  std::optional<retinue::Runtime> runtime;
  if (command == "run") runtime.emplace(argc, argv);
  CLI::App app("Starts and supervises programs of several processes.", "retinue");
  app.set_version_flag("--version", retinue::version());
  app.require_subcommand(1);
  app.formatter(std::make_shared<retinue::HelpText>());
  CLI::App* run =
      app.add_subcommand("run", "Start the ranks of a program, with the environment variables that torchrun sets");
  retinue::RunFlags flags;
  retinue::declare_run_flags(*run, flags);
  run->footer(retinue::kRunExamples);
  std::string shell;
  std::optional<retinue::JobCommands> job_commands;
  if (command != "run") declare_other_commands(app, job_commands, shell);  // Its ranks don't wait for them.
  if (argc == 1) {
    std::fputs(app.help().c_str(), stderr);
    return kWrongUse;
  }
  if (argc == 3 && command == "--write-share-files") {  // For the build: what is installed as share/.
    retinue::write_share_files(app, argv[2]);
    return 0;
  }
  const auto is_it = [&command](const CLI::App* each) { return each->get_name() == command; };
  if (!command.starts_with('-') && app.get_subcommands(is_it).empty())
    throw retinue::UsageError(retinue::unknown_command_text(app, command));
  Words words = words_of(*run, argc, argv);
  std::reverse(words.ours.begin(), words.ours.end());  // CLI11 takes them from the end.
  try {
    app.parse(words.ours);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongUse;
  }
  if (run->parsed()) return retinue::run_command(retinue::make_run_options(flags, words.program));
  if (retinue::is_job_command(command)) return job_commands->run();
  std::fputs(retinue::completion_script(app, shell).c_str(), stdout);
  return 0;
} catch (const retinue::UsageError& error) {
  retinue::write_standard_error(std::string("retinue: ") + error.what() + "\n");
  return kWrongUse;
} catch (const std::exception& error) {
  retinue::write_standard_error(std::string("retinue: ") + error.what() + "\n");
  return 1;
}
