#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace retinue {

/// CLOCK_MONOTONIC in nanoseconds: the same in all processes of a host. Async-signal-safe.
inline std::uint64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

inline timespec to_timespec(std::chrono::nanoseconds duration) noexcept {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration);
  return {static_cast<time_t>(seconds.count()), static_cast<long>((duration - seconds).count())};
}

/// The point of CLOCK_MONOTONIC that is `duration` away, as system calls with an absolute deadline take it.
inline timespec monotonic_after(std::chrono::nanoseconds duration) noexcept {
  const std::chrono::nanoseconds now(monotonic_ns());
  return to_timespec(now + std::min(duration, std::chrono::nanoseconds::max() - now));
}

}  // namespace retinue
