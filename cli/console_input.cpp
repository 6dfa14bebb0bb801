#include "console_input.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "retinue/base/error.h"

namespace retinue {

ConsoleInput::ConsoleInput() {
  if (isatty(0) != 1) return;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw SystemError("making a pipe from the terminal to a rank", errno);
  to_rank_ = ends[1];
  fcntl(to_rank_, F_SETFL, O_NONBLOCK);
  terminal_ = fcntl(0, F_DUPFD_CLOEXEC, 3);
  wake_ = eventfd(0, EFD_CLOEXEC);
  const bool is_ready = terminal_ >= 0 && wake_ >= 0 && dup2(ends[0], 0) == 0;
  const int error = errno;
  close(ends[0]);
  if (!is_ready) throw SystemError("making a pipe from the terminal to a rank", error);
  thread_ = std::thread([this] { pump(); });
}

ConsoleInput::~ConsoleInput() {
  if (terminal_ < 0) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
  thread_.join();
  dup2(terminal_, 0);
  close(terminal_);
  close(wake_);
}

bool ConsoleInput::wait_for(int fd, short events) const {
  for (;;) {
    pollfd waits[] = {{fd, events, 0}, {wake_, POLLIN, 0}};
    if (poll(waits, 2, -1) < 0 && errno == EINTR) continue;
    if (waits[1].revents != 0) return false;
    if (waits[0].revents != 0) return true;
  }
}

void ConsoleInput::pump() const {
  sigset_t pipe_signal;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, nullptr);
  char text[4096];
  bool is_open = true;
  while (is_open && wait_for(terminal_, POLLIN)) {
    const ssize_t bytes = read(terminal_, text, sizeof text);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) break;  // Ctrl-D, or the terminal is gone: the rank's end of file.
    for (ssize_t done = 0; is_open && done < bytes;) {
      is_open = wait_for(to_rank_, POLLOUT);
      const ssize_t written = is_open ? write(to_rank_, text + done, static_cast<std::size_t>(bytes - done)) : 0;
      if (written < 0 && errno != EAGAIN && errno != EINTR) is_open = false;
      if (written > 0) done += written;
    }
  }
  close(to_rank_);
}

}  // namespace retinue
