#pragma once

#include <time.h>

#include <cstdint>

namespace retinue {

/// CLOCK_MONOTONIC in nanoseconds: the same in all processes of a host. Async-signal-safe.
inline std::uint64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace retinue
