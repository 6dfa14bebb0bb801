#include "process/logs/console.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace retinue {

Console::Console(int fd, std::atomic<std::uint64_t>& written_bytes)
    : fd_(fd), written_bytes_(written_bytes), piece_bytes_(kRoomBytes) {
  struct stat status {};
  if (fstat(fd, &status) != 0) {
    close_after(errno);
    return;
  }
  is_socket_ = S_ISSOCK(status.st_mode);
  // That much goes into a pipe at once, and fits when poll() says that something does.
  if (!S_ISREG(status.st_mode)) piece_bytes_ = PIPE_BUF;
}

void Console::seal(std::atomic<std::uint64_t>& shown, std::uint64_t offset) {
  pieces_.push_back({pending_.size(), &shown, offset});
}

void Console::add_line(const std::string& line) {
  if (is_gone_) return;
  pending_ += line;
  pending_ += '\n';
  pieces_.push_back({pending_.size(), nullptr, 0});
}

bool Console::flush() {
  bool any = false;
  while (!pieces_.empty()) {
    const Piece piece = pieces_.front();
    if (written_ < piece.end) {
      if (!write_some(piece.end)) return any;
      any = true;
    }
    if (written_ < piece.end) continue;
    if (piece.shown != nullptr) piece.shown->store(piece.offset, std::memory_order_relaxed);
    pieces_.pop_front();
  }
  pending_.clear();
  written_ = 0;
  return any;
}

bool Console::write_some(std::size_t end) {
  pollfd entry{fd_, POLLOUT, 0};
  if (poll(&entry, 1, 0) <= 0) return false;
  const char* first = pending_.data() + written_;
  const std::size_t bytes = std::min(end - written_, piece_bytes_);
  const ssize_t taken = is_socket_ ? send(fd_, first, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) : write(fd_, first, bytes);
  if (taken < 0) {
    if (errno != EINTR && errno != EAGAIN) close_after(errno);
    return false;
  }
  written_ += static_cast<std::size_t>(taken);
  written_bytes_.fetch_add(static_cast<std::uint64_t>(taken), std::memory_order_relaxed);
  return taken > 0;
}

void Console::close_after(int error) {
  is_gone_ = true;
  // A reader that had enough, or a terminal that was closed.
  if (error != EPIPE && error != ECONNRESET && error != EIO) error_ = error;
  pieces_.clear();
  pending_.clear();
  written_ = 0;
}

void show_on(int fd, const std::string& line, std::chrono::milliseconds patience) {
  std::atomic<std::uint64_t> written = 0;
  Console console(fd, written);
  console.add_line(line);
  for (int ready = 1; ready == 1 && console.is_pending();) {
    if (console.flush()) continue;
    pollfd entry{fd, POLLOUT, 0};
    ready = console.is_pending() ? poll(&entry, 1, static_cast<int>(patience.count())) : 0;
  }
}

}  // namespace retinue
