#include "command_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "retinue/base/error.h"

namespace retinue {
namespace {

/// The flag's name without its value: "--tee" of "--tee=3", "-n" of "-n2".
std::string name_of(const std::string& word) {
  return word.starts_with("--") ? word.substr(0, word.find('=')) : word.substr(0, 2);
}

std::string likely_meant(const CLI::App& app, std::string name) {
  std::ranges::replace(name, '_', '-');
  for (const CLI::Option* option : app.get_options())
    for (const std::string& known : option->get_lnames())
      if (name.size() > 3 && known.starts_with(name.substr(2))) return fmt::format(" (did you mean --{}?)", known);
  return "";
}

[[noreturn]] void refuse(const CLI::App& app, const std::string& word) {
  throw UsageError(fmt::format(
      "retinue run has no flag '{}'{}; see retinue run --help; if the program has this name, put -- before it", word,
      likely_meant(app, name_of(word))));
}

}  // namespace

CommandLine split_command_line(const CLI::App& app, const std::vector<std::string>& words) {
  std::size_t at = 0;
  while (at < words.size() && words[at] != "--" && words[at].starts_with("-") && words[at] != "-") {
    const std::string& word = words[at];
    const std::string name = name_of(word);
    const CLI::Option* option = app.get_option_no_throw(name);
    const bool has_value = word.size() > name.size();
    if (option == nullptr) refuse(app, word);
    const bool takes_value = option->get_items_expected_max() != 0;
    if (has_value && !takes_value && !word.starts_with("--")) refuse(app, word);
    at += takes_value && !has_value ? 2 : 1;
  }
  const auto begin = words.begin() + static_cast<std::ptrdiff_t>(std::min(at, words.size()));
  return {{words.begin(), begin}, {begin, words.end()}};
}

}  // namespace retinue
