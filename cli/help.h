#pragma once

#include <CLI/CLI.hpp>

namespace retinue {

/// Help that shows each flag in one spelling, and without the variable that it is also read from: one sentence says
/// that.
class HelpText : public CLI::Formatter {
 public:
  HelpText() { column_width(34); }
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
};

/// Examples, below the flags of `retinue run --help`.
extern const char* const kRunExamples;

/// For a command that there is none of: the one that was probably meant, if any, and all that there are.
std::string unknown_command_text(const CLI::App& app, const std::string& command);

}  // namespace retinue
