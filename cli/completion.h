#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace retinue {

/// A script that completes the commands and flags of `app` in that shell: "bash" or "zsh". Errors: UsageError.
std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace retinue
