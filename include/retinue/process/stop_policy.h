#pragma once

#include <chrono>

namespace retinue {

/// How ranks are made to end, step by step; data, so that it can be passed, printed and replayed.
struct StopPolicy {
  /// Time that ranks have between SIGTERM (sent with SIGCONT to the rank's process group) and SIGKILL.
  std::chrono::milliseconds terminate_wait = std::chrono::seconds(30);
  /// Time after SIGKILL after which a process that the kernel does not let go is reported and abandoned.
  std::chrono::milliseconds kill_wait = std::chrono::seconds(10);
};

}  // namespace retinue
