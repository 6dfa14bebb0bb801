#pragma once

#include <chrono>

namespace retinue {

/// How ranks are ended, step by step. It is data, so it can be passed, printed and replayed.
struct StopPolicy {
  /// The time between SIGTERM (sent with SIGCONT to the rank's process group) and SIGKILL.
  std::chrono::milliseconds terminate_wait = std::chrono::seconds(30);
  /// The time after SIGKILL after which a process that the kernel doesn't end is reported and abandoned.
  std::chrono::milliseconds kill_wait = std::chrono::seconds(10);
};

}  // namespace retinue
