#pragma once

#include <filesystem>
#include <string>

namespace retinue {

std::string host_name();

/// runs/DATE_TIME_HOST, as PyTorch names it.
std::filesystem::path default_log_folder();

/// Makes the folder, with those above it. Errors: SystemError.
void make_log_folder(const std::filesystem::path& folder);

}  // namespace retinue
