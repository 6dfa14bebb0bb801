#include "os/files/descriptor_calls.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "retinue/base/error.h"

namespace retinue {

bool wait_ready(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const std::chrono::nanoseconds left = deadline.left(std::chrono::hours(1));
    const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
    const timespec time{seconds.count(), (left - seconds).count()};
    const int ready = ppoll(&entry, 1, &time, nullptr);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw SystemError("waiting for a descriptor", errno);
    if (deadline.passed()) return false;
  }
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = EIO;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace retinue
