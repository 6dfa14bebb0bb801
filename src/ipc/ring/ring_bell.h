#pragma once

#include <chrono>

#include "ipc/memory/job_clock.h"
#include "ipc/ring/ring_layout.h"

/// Lost wake-ups: who changes a slot and then looks at `parked`, and who sets `parked` and then looks at the slots, do
/// all four sequentially consistently. So one of them sees the other. A wake-up that a killed process took along is
/// made up for by the others' looking up from time to time.
namespace retinue {

/// How long a sleeper sleeps at most before it looks up.
constexpr std::chrono::milliseconds kRingLookUp{20};

void ring_parked(RingBell& bell);
void ring_all_parked(RingBell& bell);

/// After a slot was changed: wakes one that sleeps, who wakes the next if there is more. True: somebody was parked, so
/// that whoever polls may be, too: see MessageRing::ring_pollers(). The same of what follows.
inline bool ring(RingBell& bell) {
  if (bell.parked.load(std::memory_order_seq_cst) == 0) return false;
  ring_parked(bell);
  return true;
}

/// Before work of some 100 us, behind which the bell will ring: who sleeps gets up meanwhile, and who spins goes on,
/// but not for longer than 200 us.
bool announce(RingBell& bell);

/// The same after what may have been announced.
inline bool ring_as_announced(RingBell& bell) {
  if (bell.expected_until_ns.load(std::memory_order_relaxed) != 0)
    bell.expected_until_ns.store(0, std::memory_order_relaxed);
  return ring(bell);
}

/// The same after a plain store, by a lone user of a side of a ring: see MessageRing::see_solo_users().
bool fence_and_ring(RingBell& bell);
inline bool ring_alone(RingBell& bell) {
  // In this order.
  const BellFences fences(bell.fences.load(std::memory_order_seq_cst));
  const std::uint32_t parked = bell.parked.load(std::memory_order_seq_cst);
  if (fences.are_asked_for() || parked != 0) [[unlikely]]
    return fence_and_ring(bell);
  return false;
}

/// What was waited for came without sleep: lone users need make no barriers.
void end_fences(RingBell& bell);

/// How long a thread that spins lets the other side go on between two looks.
enum class RingPace {
  kAnswer,  ///< One message is waited for: its sender should not be disturbed, but not be left alone for long either.
  kStream,  ///< Many follow each other: one side that keeps at the other's heels takes its cache lines away each time.
};

/// How a thread waits for a bell: spins while the other side runs on another CPU and this has paid lately, then sleeps.
class RingWaiter {
 public:
  explicit RingWaiter(RingBell& bell) : bell_(bell) {}
  ~RingWaiter();
  RingWaiter(const RingWaiter&) = delete;
  RingWaiter& operator=(const RingWaiter&) = delete;

  /// Spins a little longer than before; false when it is time to sleep. `budget` is what this kind of wait has learned.
  bool spin(std::atomic<std::uint32_t>& budget, RingPace pace = RingPace::kAnswer);
  /// What was waited for came while spinning: it pays.
  static void note_success(std::atomic<std::uint32_t>& budget);

  /// The same, whatever was learned, while a ring is announced; for a time between two sleeps.
  bool spin_for_announced();

  /// Announces that this thread is about to sleep: look once more after it.
  void prepare();
  /// Blocking: until the bell rings, at most until `deadline` or the time to look up. True if it rang.
  bool sleep(const JobDeadline& deadline);
  bool has_slept() const { return has_slept_; }

 private:
  RingBell& bell_;
  std::uint32_t seen_ = 0;
  std::uint32_t spun_ = 0;
  std::uint32_t spun_for_announced_ = 0;  ///< Since it slept.
  bool has_slept_ = false;
};

}  // namespace retinue
