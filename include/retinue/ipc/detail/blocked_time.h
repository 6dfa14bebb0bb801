#pragma once

#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

namespace retinue::detail {

/// When a thread was blocked in calls of groups: collectives, messages, and waits for those that were begun.
/// A StepTimer collects them; on a thread without one nothing is measured.
///
/// Units: nanoseconds of CLOCK_MONOTONIC.
class BlockedTimes {
 public:
  struct Interval {
    std::uint64_t begun_ns = 0;
    std::uint64_t ended_ns = 0;
  };
  /// When nobody takes them: later ones are only added up.
  static constexpr std::size_t kMost = std::size_t{1} << 16;

  BlockedTimes() { intervals_.reserve(64); }

  void begin() noexcept {
    if (depth_++ == 0) begun_ns_ = now_ns();
  }
  void end() noexcept {
    if (--depth_ > 0) return;
    const std::uint64_t now = now_ns();
    sum_ns_ += now - begun_ns_;
    try {
      if (intervals_.size() < kMost) intervals_.push_back({.begun_ns = begun_ns_, .ended_ns = now});
    } catch (...) {  // Without memory only the sum is known.
    }
  }

  /// Whether a fork has it from its parent.
  bool is_of_parent() const { return owner_ != getpid(); }
  /// Since clear(), in order, without those beyond kMost.
  const std::vector<Interval>& intervals() const { return intervals_; }
  /// Of all.
  std::uint64_t sum_ns() const { return sum_ns_; }
  void clear() {
    intervals_.clear();
    sum_ns_ = 0;
  }

 private:
  static std::uint64_t now_ns() noexcept {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
  }

  const pid_t owner_ = getpid();
  std::vector<Interval> intervals_;
  std::uint64_t sum_ns_ = 0;
  std::uint64_t begun_ns_ = 0;
  int depth_ = 0;
};

/// Of this thread; null: nobody measures.
inline constinit thread_local BlockedTimes* blocked_times = nullptr;

/// A call in which this thread may be blocked. Only the outermost one counts. Cost: a nanosecond where nobody measures,
/// else two looks at the clock.
class BlockedScope {
 public:
  BlockedScope() noexcept : times_(blocked_times) {
    if (times_ != nullptr) times_->begin();
  }
  ~BlockedScope() {
    if (times_ != nullptr) times_->end();
  }
  BlockedScope(const BlockedScope&) = delete;
  BlockedScope& operator=(const BlockedScope&) = delete;

 private:
  BlockedTimes* const times_;
};

}  // namespace retinue::detail
