#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace retinue {

/// A command line of flags, then a program with its arguments.
struct CommandLine {
  std::vector<std::string> flags;
  std::vector<std::string> program;  ///< From the first word that is no flag and no flag's value, or from `--`.
};

/// Splits `words` by the flags that `app` has, so that no flag of the program's is taken for ours.
/// Errors: UsageError for a flag that `app` does not have, with the one that was probably meant.
CommandLine split_command_line(const CLI::App& app, const std::vector<std::string>& words);

}  // namespace retinue
