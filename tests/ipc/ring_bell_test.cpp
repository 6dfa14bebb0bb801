#include "ipc/ring/ring_bell.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdint>

#include "os/sync/clock.h"

namespace retinue {
namespace {

/// As if somebody on another CPU had announced.
void announce_from_elsewhere(RingBell& bell) {
  announce(bell);
  bell.cpu.store(1 << 20);
}

TEST(RingBell, KeepsThoseWhoSpinWhileItIsAnnounced) {
  RingBell bell{};
  RingWaiter waiter(bell);
  EXPECT_FALSE(waiter.spin_for_announced());
  const std::uint64_t before = monotonic_ns();
  announce_from_elsewhere(bell);
  while (waiter.spin_for_announced()) {
  }
  EXPECT_GE(monotonic_ns() - before, 200'000u) << "it ended before its time";
  EXPECT_FALSE(waiter.spin_for_announced());
}

TEST(RingBell, EndsAnAnnouncementWhenItRings) {
  RingBell bell{};
  announce_from_elsewhere(bell);
  ring_as_announced(bell);
  EXPECT_FALSE(RingWaiter(bell).spin_for_announced());
}

TEST(RingBell, LeavesTheCpuToWhoAnnouncedFromIt) {
  RingBell bell{};
  for (int here = -1; here != sched_getcpu();) {  // The kernel may have moved this thread between the two.
    here = sched_getcpu();
    announce(bell);
    bell.cpu.store(static_cast<std::uint32_t>(here) + 1);
    const bool spins = RingWaiter(bell).spin_for_announced();
    if (here == sched_getcpu()) {
      EXPECT_FALSE(spins);
    }
  }
}

}  // namespace
}  // namespace retinue
