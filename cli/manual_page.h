#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

namespace retinue {

/// The manual page, in troff, of a command of `app`, or with an empty name of `app` itself.
std::string manual_page(const CLI::App& app, const std::string& command);

/// Writes manual pages and completions of `app` below `folder`, which is what is installed as share/.
/// Errors: SystemError.
void write_share_files(const CLI::App& app, const std::filesystem::path& folder);

}  // namespace retinue
