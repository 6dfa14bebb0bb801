#pragma once

#include <algorithm>
#include <chrono>

namespace retinue {

/// The time at which a wait ends; made once and passed down, so that nested waits share it.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  /// Returns a deadline for a wait that only the event, or the death of the process that must cause it, can end.
  static constexpr Deadline never() { return Deadline(Clock::time_point::max()); }

  static constexpr Deadline at(Clock::time_point when) { return Deadline(when); }

  /// Returns the time after `duration`. A negative one has already passed; one beyond the clock's range means never.
  static Deadline after(std::chrono::nanoseconds duration) {
    const auto now = Clock::now();
    if (duration > Clock::time_point::max() - now) return never();
    return Deadline(now + duration);
  }

  constexpr bool is_never() const { return when_ == Clock::time_point::max(); }
  bool passed() const { return !is_never() && Clock::now() >= when_; }
  constexpr Clock::time_point when() const { return when_; }

  /// Returns the time left, at least 0 and at most `cap`, so that a wait can check its state from time to time.
  std::chrono::nanoseconds left(std::chrono::nanoseconds cap = std::chrono::nanoseconds::max()) const {
    if (is_never()) return cap;
    return std::clamp<std::chrono::nanoseconds>(when_ - Clock::now(), std::chrono::nanoseconds(0), cap);
  }

 private:
  explicit constexpr Deadline(Clock::time_point when) : when_(when) {}

  Clock::time_point when_;
};

}  // namespace retinue
