#pragma once

#include <chrono>

#include "retinue/collective/communicator.h"

namespace retinue {

/// A collective that was begun by Communicator::start(): this member's line is published, and nobody was waited for,
/// unless this member was many calls ahead.
///
/// One may be pending per communicator. Its buffers and the communicator must stay in place until finish() returned;
/// nobody may read or write the buffers until then.
/// Threads: one at a time, but not always the same.
class PendingCollective {
 public:
  PendingCollective(PendingCollective&& other) noexcept;
  PendingCollective& operator=(PendingCollective&&) = delete;
  /// One that was never finished makes later calls on the communicator throw UsageError.
  ~PendingCollective();

  /// Whether all members have begun it too, so that finish() won't wait for anyone who is late.
  /// Blocking: spins at most `budget`.
  bool ready(std::chrono::nanoseconds budget = std::chrono::nanoseconds(0)) const;

  /// Ends the collective. Blocking and errors: as the blocking call.
  void finish();

 private:
  friend class Communicator;
  explicit PendingCollective(Communicator::Impl* owner) : owner_(owner) {}

  Communicator::Impl* owner_;
};

}  // namespace retinue
