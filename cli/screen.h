#pragma once

#include <sys/types.h>
#include <termios.h>

#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include "os/files/file_descriptor.h"
#include "top_text.h"

namespace retinue {

/// Why Screen::wait() returned.
enum class Wake { kTime, kResized, kLeave, kGone };

/// The terminal as one screen that is drawn anew, on its second page, where it has one. All is put back at the end.
///
/// Threads: one in the process. Signals that end it, and Ctrl-C, are taken by wait() instead.
class Screen {
 public:
  enum class Use { kToDraw, kToWait };

  /// To wait, or without a terminal on standard output and input, it leaves those as they are.
  explicit Screen(Use use);
  ~Screen();

  bool is_terminal() const { return is_terminal_; }
  /// Lines, and columns, now: one column less than there are, so that the rest of a full line can be cleared.
  TextSize size() const;
  /// Writes over what was there, without a moment in which it is empty.
  void draw(const std::vector<std::string>& lines) const;
  /// Until `timeout` has passed, the window has another size, somebody wants to leave (q, Ctrl-C, or a signal), or the
  /// process of `pidfd` is gone.
  Wake wait(std::chrono::milliseconds timeout, int pidfd) const;

 private:
  Wake look_at_signals() const;
  bool has_key_to_leave() const;

  termios before_{};  // Filled where is_terminal_ is found.
  bool is_terminal_;
  sigset_t mask_before_{};
  FileDescriptor signals_;
};

}  // namespace retinue
