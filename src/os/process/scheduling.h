#pragma once

#include <cstdint>

namespace retinue {

/// How the kernel schedules a thread, as its children inherit it.
struct Scheduling {
  std::uint32_t policy = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;  ///< Of a real-time policy.

  static Scheduling of_this_thread();
  /// Makes it that of the calling thread. Errors: SystemError.
  void take() const;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(policy, nice, priority);
  }
  friend bool operator==(const Scheduling&, const Scheduling&) = default;
};

/// Asks for short time slices, so that this process is scheduled soon after it wakes among busy ones. Inherited by
/// children, which call the second function.
void request_short_slice();
void request_default_slice();

}  // namespace retinue
