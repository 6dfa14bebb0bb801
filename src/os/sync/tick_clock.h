#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "os/sync/clock.h"

namespace retinue {

/// Counts time for a third of what clock_gettime() costs, on all CPUs and in all processes of a host alike.
///
/// Units: ticks of a length that is found by comparing two readings with CLOCK_MONOTONIC, see TickScale.
class TickClock {
 public:
  static std::uint64_t now() noexcept {
#if defined(__x86_64__)
    if (kCountsCycles) return __rdtsc();
#elif defined(__aarch64__)
    std::uint64_t ticks = 0;
    asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#endif
    return monotonic_ns();
  }

 private:
#if defined(__x86_64__)
  static const bool kCountsCycles;  ///< The counter runs on at one rate through all states of power.
#endif
};

/// One moment by both clocks.
struct TickMark {
  std::uint64_t ticks = 0;
  std::uint64_t ns = 0;  ///< CLOCK_MONOTONIC.

  static TickMark now() noexcept;
};

/// Turns ticks into CLOCK_MONOTONIC, by two moments between, or near, which they were read.
class TickScale {
 public:
  TickScale(const TickMark& early, const TickMark& late);

  std::uint64_t ns_of(std::uint64_t ticks) const;

 private:
  TickMark late_;
  double ns_per_tick_;
};

}  // namespace retinue
