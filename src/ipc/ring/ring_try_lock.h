#pragma once

#include <atomic>
#include <cstdint>

#include "ipc/memory/ring_owner.h"

namespace retinue {

/// What one process at a time does in a ring, for a scope. Nobody waits for it: who finds it taken comes again. A dead
/// process's is taken over when no thread of it can run any more; its work must be ended first, then. A fork that has
/// no slot of its own gets none: its death would not be known.
class RingTryLock {
 public:
  RingTryLock(const JobMemory& memory, std::atomic<std::uint32_t>& holder) : holder_(holder), own_(own_owner(memory)) {
    std::uint32_t other = holder.load(std::memory_order_acquire);
    has_ = memory.is_of_this_process() && (other == 0 || (other != own_ && owner_is_reaped(memory, other))) &&
           holder.compare_exchange_strong(other, own_, std::memory_order_acq_rel);
  }
  ~RingTryLock() {
    std::uint32_t own = own_;
    if (has_) holder_.compare_exchange_strong(own, 0, std::memory_order_acq_rel);
  }
  RingTryLock(const RingTryLock&) = delete;
  RingTryLock& operator=(const RingTryLock&) = delete;

  explicit operator bool() const { return has_; }

 private:
  std::atomic<std::uint32_t>& holder_;
  std::uint32_t own_;
  bool has_;
};

}  // namespace retinue
