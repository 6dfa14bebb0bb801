#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "ipc/memory/job_layout.h"
#include "os/sync/clock.h"

/// The job's clock is CLOCK_MONOTONIC, but it stands still while somebody debugs one of its ranks: the others must not
/// run into timeouts, nor the stop sequence end what is being looked at.
namespace retinue {

/// Set in JobHeader::clock while the clock stands; the rest is then its time, and else how far it is behind.
constexpr std::uint64_t kClockStands = std::uint64_t{1} << 63;

inline bool job_clock_stands(const JobHeader& header) {
  return (header.clock.load(std::memory_order_acquire) & kClockStands) != 0;
}

inline std::chrono::nanoseconds job_now(const JobHeader& header) {
  const std::uint64_t clock = header.clock.load(std::memory_order_acquire);
  const std::uint64_t now = (clock & kClockStands) != 0 ? clock & ~kClockStands : monotonic_ns() - clock;
  return std::chrono::nanoseconds(now);
}

/// The guardian's alone.
inline void stop_job_clock(JobHeader& header) {
  header.clock.store(kClockStands | static_cast<std::uint64_t>(job_now(header).count()), std::memory_order_release);
}
inline void resume_job_clock(JobHeader& header) {
  header.clock.store(monotonic_ns() - static_cast<std::uint64_t>(job_now(header).count()), std::memory_order_release);
}

/// A Deadline on the job's clock.
class JobDeadline {
 public:
  static JobDeadline after(const JobHeader& header, std::chrono::nanoseconds duration) {
    const auto now = job_now(header);
    const auto longest = std::chrono::nanoseconds::max();
    return JobDeadline(header, duration > longest - now ? longest : now + duration);
  }

  bool is_before(const JobDeadline& other) const { return when_ < other.when_; }
  bool passed() const { return !is_never() && job_now(*header_) >= when_; }
  /// Time left, never negative, at most `cap`: a wait must look up from time to time, since the clock may stand.
  std::chrono::nanoseconds left(std::chrono::nanoseconds cap) const {
    if (is_never()) return cap;
    return std::clamp(when_ - job_now(*header_), std::chrono::nanoseconds(0), cap);
  }

 private:
  JobDeadline(const JobHeader& header, std::chrono::nanoseconds when) : header_(&header), when_(when) {}
  bool is_never() const { return when_ == std::chrono::nanoseconds::max(); }

  const JobHeader* header_;
  std::chrono::nanoseconds when_;
};

}  // namespace retinue
