#pragma once

#include <poll.h>

#include <chrono>

#include "ipc/crash_fixture.h"
#include "ipc/memory/poller.h"

/// For tests of descriptors of pipes and queues.
namespace retinue {

inline bool becomes_readable(int fd, std::chrono::milliseconds patience) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, static_cast<int>(patience.count())) == 1;
}

class PollTest : public CrashTest {
 protected:
  /// Does what the guardian does at an end.
  bool bury(const Victim& victim) {
    const bool has_exited = CrashTest::bury(victim);
    ring_all_pollers(*memory_);
    return has_exited;
  }
};

}  // namespace retinue
