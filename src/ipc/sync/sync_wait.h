#pragma once

#include <algorithm>
#include <chrono>

#include "ipc/memory/job_clock.h"
#include "ipc/memory/job_end.h"
#include "ipc/ring/ring_bell.h"

namespace retinue {

/// Blocking: until `attempt()` is true, at most `timeout`, zero only tries; false when it was not in time. Whoever
/// makes it true rings the bell. Errors: SystemError when the job ends.
template <class Attempt>
bool wait_at_bell(const JobMemory& memory, RingBell& bell, std::atomic<std::uint32_t>& spin_budget,
                  std::chrono::nanoseconds timeout, const char* waiting, Attempt attempt) {
  if (attempt()) return true;
  if (timeout <= std::chrono::nanoseconds(0)) return false;
  const JobDeadline deadline = JobDeadline::after(memory.header(), timeout);
  RingWaiter waiter(bell);
  while (waiter.spin(spin_budget)) {
    if (!attempt()) continue;
    RingWaiter::note_success(spin_budget);
    return true;
  }
  for (;;) {
    while (!deadline.passed() && waiter.spin_for_announced())
      if (attempt()) return true;
    waiter.prepare();
    if (attempt()) return true;
    if (deadline.passed()) return false;
    if (!waiter.sleep(deadline)) throw_if_wait_ends(memory, waiting);
  }
}

}  // namespace retinue
