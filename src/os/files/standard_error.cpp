#include "os/files/standard_error.h"

#include <unistd.h>

#include <cerrno>

namespace retinue {

void write_standard_error(std::string_view lines) {
  while (!lines.empty()) {
    const ssize_t written = write(STDERR_FILENO, lines.data(), lines.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    lines.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace retinue
