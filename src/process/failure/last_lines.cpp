#include "process/failure/last_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "os/files/file_descriptor.h"

namespace retinue {
namespace {

constexpr off_t kMaxBytes = 64 << 10;

/// The file's end; its first line may lack its beginning.
std::string read_end(const std::string& path) {
  // Without waiting: what should be a file may be a pipe.
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  std::string text(static_cast<std::size_t>(std::min(status.st_size, kMaxBytes)), '\0');
  const off_t begin = status.st_size - static_cast<off_t>(text.size());
  std::size_t used = 0;
  while (used < text.size()) {
    const ssize_t bytes = pread(file.get(), text.data() + used, text.size() - used, begin + static_cast<off_t>(used));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) break;
    used += static_cast<std::size_t>(bytes);
  }
  text.resize(used);
  return text;
}

std::string as_shown(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  if (const auto redrawn = line.rfind('\r'); redrawn != std::string_view::npos) line.remove_prefix(redrawn + 1);
  std::string text(line);
  for (char& c : text)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f) c = '.';
  return text;
}

}  // namespace

std::vector<std::string> last_lines(const std::string& path, std::size_t count) {
  if (path.empty()) return {};
  const std::string text = read_end(path);
  std::string_view left = text;
  std::vector<std::string> lines;
  while (!left.empty() && lines.size() < count) {
    if (left.ends_with('\n')) left.remove_suffix(1);
    const auto end = left.rfind('\n');
    const std::size_t begin = end == std::string_view::npos ? 0 : end + 1;
    std::string line = as_shown(left.substr(begin));
    if (!line.empty()) lines.push_back(std::move(line));
    left = left.substr(0, begin);
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

}  // namespace retinue
