#include "screen.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "os/files/descriptor_calls.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH};
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l";  // The second page, without a cursor.
constexpr std::string_view kLeave = "\x1b[?25h\x1b[?1049l";
constexpr std::string_view kHome = "\x1b[?2026h\x1b[H";  // What follows is shown at once, where that is known.
constexpr std::string_view kRestOfLine = "\x1b[K";
constexpr std::string_view kRestOfPage = "\x1b[J\x1b[?2026l";

}  // namespace

Screen::Screen(Use use)
    : is_terminal_(use == Use::kToDraw && isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 &&
                   tcgetattr(STDIN_FILENO, &before_) == 0) {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : kSignals) sigaddset(&taken, signal);
  sigprocmask(SIG_BLOCK, &taken, &mask_before_);
  signals_.reset(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) throw SystemError("signalfd", errno);
  if (!is_terminal_) return;
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  raw.c_cc[VSUSP] = _POSIX_VDISABLE;  // A stopped one would leave the terminal like this.
  tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  write_all(STDOUT_FILENO, kEnter);
}

Screen::~Screen() {
  if (is_terminal_) {
    write_all(STDOUT_FILENO, kLeave);
    tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

TextSize Screen::size() const {
  winsize size{};
  if (!is_terminal_ || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return {};
  return {.columns = std::max<std::size_t>(size.ws_col, 2) - 1, .lines = size.ws_row};
}

void Screen::draw(const std::vector<std::string>& lines) const {
  std::string text(kHome);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i != 0) text += "\r\n";
    text += lines[i];
    text += kRestOfLine;
  }
  text += kRestOfPage;
  write_all(STDOUT_FILENO, text);  // Where the terminal is gone, wait() is told.
}

Wake Screen::wait(std::chrono::milliseconds timeout, int pidfd) const {
  const auto end = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    pollfd entries[] = {{signals_.get(), POLLIN, 0}, {pidfd, POLLIN, 0}, {is_terminal_ ? STDIN_FILENO : -1, POLLIN, 0}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    const int ready = poll(entries, std::size(entries), static_cast<int>(std::max<std::int64_t>(0, left.count())));
    if (ready == 0) return Wake::kTime;
    if (ready < 0 && errno != EINTR) throw SystemError("waiting for a key or a signal", errno);
    if (ready < 0) continue;
    if (entries[0].revents != 0) return look_at_signals();
    if (entries[1].revents != 0) return Wake::kGone;
    if ((entries[2].revents & (POLLHUP | POLLERR)) != 0 || has_key_to_leave()) return Wake::kLeave;
  }
}

Wake Screen::look_at_signals() const {
  signalfd_siginfo info;
  Wake wake = Wake::kResized;
  while (read(signals_.get(), &info, sizeof info) == sizeof info)
    if (info.ssi_signo != SIGWINCH) wake = Wake::kLeave;
  return wake;
}

bool Screen::has_key_to_leave() const {
  char keys[64];
  const ssize_t count = read(STDIN_FILENO, keys, sizeof keys);
  return count <= 0 || std::string_view(keys, static_cast<std::size_t>(count)).find_first_of("qQ") != std::string::npos;
}

}  // namespace retinue
