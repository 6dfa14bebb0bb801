#include "help.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace retinue {

std::string HelpText::make_usage(const CLI::App* app, std::string name) const {
  if (app->get_name() != "run") return CLI::Formatter::make_usage(app, name);
  return "Usage: retinue run [flags] program [arguments...] [: -n N program [arguments...]]...\n";
}

std::string HelpText::make_option_name(const CLI::Option* option, bool is_positional) const {
  if (is_positional) return option->get_name(true, false);
  std::string names;
  for (const std::string& name : option->get_snames()) names += (names.empty() ? "-" : ",-") + name;
  for (const std::string& name : option->get_lnames())
    if (name.find('_') == std::string::npos) names += (names.empty() ? "--" : ",--") + name;
  return names;
}

std::string HelpText::make_option_opts(const CLI::Option* option) const {
  if (option->get_items_expected_max() == 0) return "";
  return option->get_default_str().empty() ? "" : " [" + option->get_default_str() + "]";
}

const char* const kRunExamples =
    R"(Each flag can also be set by a variable, RETINUE_<NAME> or PET_<NAME>, for example RETINUE_NPROC_PER_NODE=4,
and can be written with underscores. Everything after the program's name belongs to the program.

Examples:
  retinue run -n 4 ./program --its --flags             # four ranks of any program
  retinue run -n auto train.py --epochs 3              # a Python script, one rank per GPU or CPU
  retinue run -n 2 -m package.train                    # a Python module
  retinue run -n 2 --log-dir logs --tee 3 ./program    # output to files and, with a prefix, to the console
  retinue run -n 2 --max-restarts 3 ./program          # start all ranks again after a failure
  retinue run -n 1 ./learner : -n 3 ./actor            # two programs, one world of four ranks
  retinue run -n 2 --wrap 'gdb -ex run --args' --wrap-ranks 1 --stdin 1 ./program
  retinue run -n 2 --dry-run ./program                 # print what would be started
)";

namespace {

/// Characters to insert, remove or replace that make one of the other.
std::size_t edits_between(const std::string& from, const std::string& to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row.back();
}

}  // namespace

std::string unknown_command_text(const CLI::App& app, const std::string& command) {
  constexpr std::size_t kMostEdits = 2;
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(each->get_name());
  // Of those as near, the one that begins as it: "stak" is rather "stacks" than "stop".
  const auto distance = [&](const std::string& name) {
    const auto common = std::ranges::mismatch(command, name).in1 - command.begin();
    return std::pair(edits_between(command, name), -common);
  };
  const auto nearest = std::ranges::min_element(names, {}, distance);
  std::string text = fmt::format("there is no command \"{}\"", command);
  if (nearest != names.end() && edits_between(command, *nearest) <= std::min(kMostEdits, command.size() - 1))
    text += fmt::format("; did you mean \"{}\"?", *nearest);
  return text + fmt::format("\nThe commands are {}; `retinue --help` describes them.", fmt::join(names, ", "));
}

}  // namespace retinue
