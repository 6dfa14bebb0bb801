#pragma once

#include <fmt/format.h>

#include <chrono>
#include <string>

#include "retinue/base/deadline.h"
#include "retinue/base/error.h"

namespace retinue {

/// Calls `attempt(deadline)`, which throws TimeoutError at it. Until then `report(error, waited)` is called after
/// `late_after`, if that is more than nothing, and again after times that double.
template <class Attempt, class Report>
auto wait_with_reports(std::chrono::nanoseconds late_after, Deadline deadline, Attempt attempt, Report report) {
  const Deadline::Clock::time_point begin = Deadline::Clock::now();
  for (auto next = late_after; next.count() > 0; next = next * 2 + late_after) {
    const Deadline look = Deadline::after(next - (Deadline::Clock::now() - begin));
    if (look.is_never() || look.when() >= deadline.when()) break;
    try {
      return attempt(look);
    } catch (const TimeoutError& error) {
      report(error, Deadline::Clock::now() - begin);
    }
  }
  return attempt(deadline);
}

inline std::string seconds_text(std::chrono::nanoseconds time) {
  return fmt::format("{:.1f} s", std::chrono::duration<double>(time).count());
}

/// As "this wait ends in 1790.0 s".
inline std::string end_text(Deadline deadline) {
  return deadline.is_never() ? "this wait has no end" : "this wait ends in " + seconds_text(deadline.left());
}

}  // namespace retinue
