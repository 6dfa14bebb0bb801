#pragma once

#include <optional>
#include <string>

/// Small files that are for this user's eyes only.
namespace retinue {

/// All of a file; nullopt if there is none.
/// Errors: UsageError, which says what to do, if it is another user's, if others may read or write it, or if it is no
/// ordinary file of at most 64 KiB. SystemError.
std::optional<std::string> read_private_file(const std::string& path);

/// Makes the file, and the folders that it needs, for this user only; it is there whole or not at all. False: another
/// process made one meanwhile, which stays as it is. Errors: SystemError.
bool make_private_file(const std::string& path, const std::string& text);

}  // namespace retinue
