#include "ipc/ring/ring_bell.h"

#include <sched.h>

#include <algorithm>

#include "os/sync/clock.h"
#include "os/sync/cpu_relax.h"
#include "os/sync/futex.h"

namespace retinue {
namespace {

// Counted in pauses of 10 to 50 ns each; a wake-up by futex takes as long as some hundreds of them.
constexpr std::uint32_t kMostSpins = 2048;
constexpr std::uint32_t kFewestSpins = 256;  // About what a sleep costs: enough to learn that it pays again.
/// Between two looks: who looks all the time takes the line away from the one who is to write it.
constexpr std::uint32_t kFewestPauses = 8;
constexpr std::uint32_t kMostPauses = 32;
constexpr std::uint32_t kStreamPauses = 64;  // Some 1 us, and 100 words.
constexpr std::uint64_t kExpectedNs = 200'000;
constexpr std::uint32_t kMostSpinsForAnnounced = 32768;  // Others may take what was announced, time and again.

std::uint32_t this_cpu() {
  return static_cast<std::uint32_t>(sched_getcpu()) + 1;
}

}  // namespace

void ring_parked(RingBell& bell) {
  bell.parked.store(0, std::memory_order_seq_cst);
  bell.cpu.store(this_cpu(), std::memory_order_relaxed);
  bell.rung.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(bell.rung, 1);
}

void ring_all_parked(RingBell& bell) {
  bell.parked.store(0, std::memory_order_seq_cst);
  bell.rung.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(bell.rung);
}

bool announce(RingBell& bell) {
  bell.cpu.store(this_cpu(), std::memory_order_relaxed);
  bell.expected_until_ns.store(monotonic_ns() + kExpectedNs, std::memory_order_relaxed);
  return ring(bell);
}

bool fence_and_ring(RingBell& bell) {
  if (bell.parked.fetch_or(0, std::memory_order_seq_cst) == 0) return false;
  ring_parked(bell);
  return true;
}

void end_fences(RingBell& bell) {
  std::uint32_t word = bell.fences.load(std::memory_order_relaxed);
  if (BellFences(word).are_made())
    bell.fences.compare_exchange_strong(word, BellFences(word).ended().word(), std::memory_order_seq_cst);
}

/// The ring that woke this one cleared `parked`, though others may sleep still.
RingWaiter::~RingWaiter() {
  if (has_slept_) bell_.parked.store(1, std::memory_order_seq_cst);
}

bool RingWaiter::spin(std::atomic<std::uint32_t>& budget, RingPace pace) {
  std::uint32_t allowed = budget.load(std::memory_order_relaxed);
  if (allowed == 0) allowed = kMostSpins;  // Never tried before.
  const std::uint32_t other = spun_ == 0 ? bell_.cpu.load(std::memory_order_relaxed) : 0;
  if (other != 0 && other == this_cpu()) return false;
  if (spun_ >= allowed) {
    budget.store(std::max(kFewestSpins, allowed / 2), std::memory_order_relaxed);
    return false;
  }
  const std::uint32_t pauses =
      pace == RingPace::kStream ? kStreamPauses : std::min(spun_ / 2 + kFewestPauses, kMostPauses);
  for (std::uint32_t i = 0; i < pauses; ++i) cpu_relax();
  spun_ += pauses;
  return true;
}

bool RingWaiter::spin_for_announced() {
  const std::uint64_t until = bell_.expected_until_ns.load(std::memory_order_relaxed);
  if (until == 0 || spun_for_announced_ >= kMostSpinsForAnnounced) return false;
  if (bell_.cpu.load(std::memory_order_relaxed) == this_cpu()) return false;
  // What is further ahead was written over.
  const std::uint64_t now = monotonic_ns();
  if (now >= until || until - now > kExpectedNs) return false;
  spun_for_announced_ += kMostPauses;
  for (std::uint32_t i = 0; i < kMostPauses; ++i) cpu_relax();
  return true;
}

void RingWaiter::note_success(std::atomic<std::uint32_t>& budget) {
  const std::uint32_t allowed = budget.load(std::memory_order_relaxed);
  if (allowed != 0 && allowed < kMostSpins) budget.store(allowed * 2, std::memory_order_relaxed);
}

void RingWaiter::prepare() {
  seen_ = bell_.rung.load(std::memory_order_seq_cst);
  bell_.parked.exchange(1, std::memory_order_seq_cst);
}

bool RingWaiter::sleep(const JobDeadline& deadline) {
  futex_wait(bell_.rung, seen_, deadline.left(kRingLookUp));
  has_slept_ = true;
  spun_for_announced_ = 0;
  return bell_.rung.load(std::memory_order_relaxed) != seen_;
}

}  // namespace retinue
