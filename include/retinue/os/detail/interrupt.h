#pragma once

#include <atomic>

namespace retinue::detail {

/// Returns whether this thread's wait for other ranks is to end because of a signal. A wait asks after each sleep, so
/// at least every 50 ms, and at once when a signal wakes it.
using InterruptCheck = bool (*)();

/// What waits ask, if it is set. The Python module sets it: Python's handlers of signals run only when they are asked
/// to.
inline std::atomic<InterruptCheck> interrupt_check{nullptr};

inline bool is_interrupted() {
  const InterruptCheck check = interrupt_check.load(std::memory_order_acquire);
  return check != nullptr && check();
}

}  // namespace retinue::detail
