#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Small files by which the kernel tells something.
namespace retinue {

/// All of a file; empty if it cannot be read.
std::string read_kernel_file(const std::string& path);

/// Its first line without the end; nullopt if it cannot be read or is empty.
std::optional<std::string> first_line_of(const std::string& path);

/// The number that a file begins with; nullopt if there is none, as in "max".
std::optional<std::size_t> read_number(const std::string& path);

/// The entries of a folder whose names are numbers, as processes in /proc; nullopt and errno if it cannot be opened.
std::optional<std::vector<int>> numbers_in_folder(const std::string& path);

/// The number behind `key` in lines of "key number".
std::optional<std::uint64_t> counter_in(std::string_view text, std::string_view key);

}  // namespace retinue
