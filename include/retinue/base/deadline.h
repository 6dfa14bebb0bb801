#pragma once

#include <algorithm>
#include <chrono>

namespace retinue {

/// A point in time at which a wait ends; made once and handed down, so that nested waits share it.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  /// A wait that only the event itself, or the death of the one who must cause it, can end.
  static constexpr Deadline never() { return Deadline(Clock::time_point::max()); }

  static constexpr Deadline at(Clock::time_point when) { return Deadline(when); }

  /// A negative duration has already passed; durations beyond the clock's range mean never.
  static Deadline after(std::chrono::nanoseconds duration) {
    const auto now = Clock::now();
    if (duration > Clock::time_point::max() - now) return never();
    return Deadline(now + duration);
  }

  constexpr bool is_never() const { return when_ == Clock::time_point::max(); }
  bool passed() const { return !is_never() && Clock::now() >= when_; }
  constexpr Clock::time_point when() const { return when_; }

  /// Time left, never negative; `cap` bounds it, so that a wait can look up from time to time.
  std::chrono::nanoseconds left(std::chrono::nanoseconds cap = std::chrono::nanoseconds::max()) const {
    if (is_never()) return cap;
    return std::clamp<std::chrono::nanoseconds>(when_ - Clock::now(), std::chrono::nanoseconds(0), cap);
  }

 private:
  explicit constexpr Deadline(Clock::time_point when) : when_(when) {}

  Clock::time_point when_;
};

}  // namespace retinue
