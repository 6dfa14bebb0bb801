#pragma once

#include <thread>

namespace retinue {

/// Lets a rank read what is typed: where standard input is a terminal, which ranks cannot read because they are not its
/// foreground group, it becomes a pipe that a thread fills from the terminal. Files and pipes are left as they are.
class ConsoleInput {
 public:
  ConsoleInput();
  ~ConsoleInput();

 private:
  void pump() const;
  /// Waits for `fd`; false: it is time to end.
  bool wait_for(int fd, short events) const;

  int terminal_ = -1;  ///< -1: standard input is no terminal.
  int to_rank_ = -1;
  int wake_ = -1;
  std::thread thread_;
};

}  // namespace retinue
