#pragma once

#include <chrono>
#include <thread>

namespace retinue::test {

/// Looks again and again until `is_true`, for what nothing wakes a test; false when it is not after a minute.
template <class Condition>
bool wait_until(Condition is_true) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!is_true()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace retinue::test
