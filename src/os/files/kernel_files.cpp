#include "os/files/kernel_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <memory>

#include "base/parse_number.h"
#include "os/files/file_descriptor.h"

namespace retinue {

std::optional<std::size_t> read_number(const std::string& path) {
  const std::string text = read_kernel_file(path);
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

std::string read_kernel_file(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  std::string text;
  char piece[8192];
  for (;;) {
    const ssize_t bytes = read(file.get(), piece, sizeof piece);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return text;
    text.append(piece, static_cast<std::size_t>(bytes));
  }
}

std::optional<std::string> first_line_of(const std::string& path) {
  const std::string text = read_kernel_file(path);
  if (text.empty()) return std::nullopt;
  return text.substr(0, text.find('\n'));
}

std::optional<std::vector<int>> numbers_in_folder(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), closedir);
  if (!folder) return std::nullopt;
  std::vector<int> numbers;
  while (const dirent* entry = readdir(folder.get()))
    if (const auto number = parse_number<int>(entry->d_name)) numbers.push_back(*number);
  return numbers;
}

std::string target_of_link(const std::string& path) {
  std::string target(PATH_MAX, '\0');
  target.resize(static_cast<std::size_t>(std::max<ssize_t>(readlink(path.c_str(), target.data(), target.size()), 0)));
  return target;
}

std::optional<std::uint64_t> counter_in(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t at = line.starts_with(key) ? line.find_first_not_of(" \t", key.size()) : std::string_view::npos;
    if (at == std::string_view::npos || at == key.size()) continue;
    std::uint64_t number = 0;
    if (std::from_chars(line.data() + at, line.data() + line.size(), number).ec == std::errc()) return number;
  }
  return std::nullopt;
}

}  // namespace retinue
