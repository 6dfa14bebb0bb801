#include "os/sync/tick_clock.h"

#include <algorithm>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace retinue {

#if defined(__x86_64__)
const bool TickClock::kCountsCycles = [] {
  constexpr unsigned kPowerManagement = 0x80000007;
  constexpr unsigned kInvariantCounter = 1u << 8;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(kPowerManagement, &a, &b, &c, &d) != 0 && (d & kInvariantCounter) != 0;
}();
#endif

TickMark TickMark::now() noexcept {
  // Whoever is interrupted between the two readings tries again: the narrowest pair counts.
  TickMark best;
  std::uint64_t narrowest = ~std::uint64_t{0};
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t before = TickClock::now();
    const std::uint64_t ns = monotonic_ns();
    const std::uint64_t width = TickClock::now() - before;
    if (width >= narrowest) continue;
    narrowest = width;
    best = {.ticks = before + width / 2, .ns = ns};
  }
  return best;
}

TickScale::TickScale(const TickMark& early, const TickMark& late)
    : late_(late),
      ns_per_tick_(late.ticks > early.ticks && late.ns > early.ns
                       ? static_cast<double>(late.ns - early.ns) / static_cast<double>(late.ticks - early.ticks)
                       : 0) {}

std::uint64_t TickScale::ns_of(std::uint64_t ticks) const {
  // Also of numbers that nobody read from a clock: a century before or after is the most.
  constexpr double kFarthest = 3e18;
  const double distance = static_cast<double>(static_cast<std::int64_t>(ticks - late_.ticks)) * ns_per_tick_;
  const auto offset = static_cast<std::int64_t>(std::clamp(distance, -kFarthest, kFarthest));
  if (offset >= 0) return late_.ns + static_cast<std::uint64_t>(offset);
  return late_.ns - std::min(late_.ns, static_cast<std::uint64_t>(-offset));
}

}  // namespace retinue
