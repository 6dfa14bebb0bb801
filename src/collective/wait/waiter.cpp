#include "collective/wait/waiter.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>

#include "collective/board/rendezvous.h"
#include "collective/wait/better_cpu.h"
#include "ipc/memory/process_slot.h"
#include "ipc/memory/process_table.h"
#include "os/machine/cgroups.h"
#include "os/machine/cpus.h"
#include "os/sync/cpu_relax.h"
#include "os/sync/futex.h"
#include "retinue/os/detail/interrupt.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A pause costs about 25 ns, a wake-up by futex about 20 us: spinning pays for waits of up to a few of the latter.
constexpr std::chrono::nanoseconds spin_budget_of(Waiting waiting) {
  switch (waiting) {
    case Waiting::kLatency:
      return 2ms;
    case Waiting::kBalanced:
      return 50us;
    case Waiting::kPolite:
      break;
  }
  return 0ns;
}
/// A yield hands the CPU to another rank for some 2 us, and who takes turns needs many: it pays for longer.
constexpr int kYieldsForSpins = 10;
/// A yield that takes longer met a program that uses its whole time slice: those of the members that share a CPU take
/// turns of what they do between two waits. One may be chance; each that follows parks twice as many waits.
constexpr auto kLongYield = 1ms;
constexpr int kParkedWaits = 8;
constexpr int kMostDoublings = 7;
/// Who yields is busy to the kernel, which leaves seven of eight such members on one of two CPUs, or both of two where
/// another program is on the other.
constexpr int kYieldsToMove = 64;
/// Where a yield was long, the CPU is shared with others that the kernel makes room for; or it lets nobody move.
constexpr int kYieldsToMoveLater = 10000;
constexpr int kSpinsPerLook = 64;
/// Parked members look up from time to time: a process may die before it holds its life lock, and then rings no bell.
constexpr auto kLookUp = 50ms;

/// The members' cgroups may differ, and their opinions must not.
void add_own_limit(BoardHeader& header) {
  const auto limit = cgroup_cpus();
  if (!limit) return;
  const auto own = static_cast<std::uint32_t>(std::max(1.0, std::ceil(*limit)));
  std::uint32_t least = header.cgroup_cpus.load(std::memory_order_relaxed);
  while ((least == 0 || own < least) &&
         !header.cgroup_cpus.compare_exchange_weak(least, own, std::memory_order_relaxed)) {
  }
}

/// CPUs beyond the last bit share those of others, of which there are more than members then.
void add_own_cpus(BoardHeader& header) {
  for (const int number : allowed_cpus()) {
    const std::size_t bit = static_cast<std::size_t>(number) % (std::size(header.cpus) * 64);
    header.cpus[bit / 64].fetch_or(std::uint64_t{1} << bit % 64, std::memory_order_relaxed);
  }
}

/// Asks the kernel to wake a waiter when the process dies; false if it has died or holds no lock yet.
bool watch(std::atomic<std::uint32_t>& life, std::uint32_t& expected) {
  constexpr std::uint32_t kOwner = ~(LifeLock::kWaiters | LifeLock::kOwnerDied);
  expected = life.load(std::memory_order_acquire);
  for (;;) {
    // A free lock must stay zero, or its future owner would wait for an owner that doesn't exist.
    if ((expected & kOwner) == 0 || (expected & LifeLock::kOwnerDied) != 0) return false;
    if ((expected & LifeLock::kWaiters) != 0) return true;
    if (life.compare_exchange_weak(expected, expected | LifeLock::kWaiters, std::memory_order_acq_rel)) {
      expected |= LifeLock::kWaiters;
      return true;
    }
  }
}

}  // namespace

Waiter::Waiter(const Board& board, const JobGroup& group, const CommunicatorOptions& options)
    : board_(board),
      header_(board.header()),
      own_(board.member(group.rank)),
      rank_(group.rank),
      long_wait_(group, board, options),
      memory_(*group.memory),
      timeout_(options.timeout),
      look_up_(kLookUp),
      spin_budget_(spin_budget_of(options.waiting)),
      yields_to_move_(kYieldsToMove) {
  for (const std::uint32_t slot : group.process_slots) processes_.push_back(&process_slot(*group.memory, slot));
  add_own_cpus(header_);
  add_own_limit(header_);
}

void Waiter::count_cpus() {
  int cpus = 0;
  for (const auto& word : header_.cpus) cpus += std::popcount(word.load(std::memory_order_relaxed));
  // Each may be bound to a CPU of its own; a cgroup's limit holds for all of them together.
  const std::uint32_t limit = header_.cgroup_cpus.load(std::memory_order_relaxed);
  crowded_ = board_.size() > usable_cpus(cpus, limit == 0 ? std::nullopt : std::optional<double>(limit));
  eager_spins_ = crowded_ || spin_budget_ == 0ns ? 0 : kEagerSpins;
}

void Waiter::wait_until_none_is_at(const WordSet& words, std::uint64_t value, JobDeadline deadline) const {
  for (int rank = words.first; rank < words.last; ++rank)
    while (words.word(rank).load(std::memory_order_seq_cst) == value && !is_lost(rank) && !deadline.passed())
      sched_yield();
}

bool Waiter::is_lost(int rank) const {
  const Member& member = board_.member(rank);
  return member.state.load(std::memory_order_acquire) == MemberState::kLeft || is_gone(memory_, member);
}

bool Waiter::find_reason_to_stop(Awaited& awaited, JobDeadline deadline, Outcome& outcome) const {
  if (header_.poison.state.load(std::memory_order_acquire) != Poison::kNone) {
    outcome = Outcome::kPoisoned;
    return true;
  }
  for (int rank = 0; rank < board_.size(); ++rank) {
    if (!awaited.is_late(rank) || !is_lost(rank) || !awaited.is_in_vain_without(rank)) continue;
    // Looked at again after the death was seen: the member may have posted it as its last deed.
    if (awaited.arrived() || !awaited.is_in_vain_without(rank)) continue;
    outcome = Outcome::kLost;
    return true;
  }
  outcome = Outcome::kTimedOut;
  return deadline.passed();
}

bool Waiter::shares_my_cpu(const Awaited& awaited) const {
  const auto here = static_cast<std::uint32_t>(sched_getcpu()) + 1;
  for (int rank = 0; rank < board_.size(); ++rank)
    if (board_.member(rank).cpu.load(std::memory_order_relaxed) == here && awaited.is_late(rank)) return true;
  return false;
}

void Waiter::yield_and_time() {
  const auto before = Clock::now();
  sched_yield();
  if (Clock::now() - before <= kLongYield) {
    long_yields_ = 0;
    return;
  }
  parked_waits_ = kParkedWaits << std::min(long_yields_++, kMostDoublings);
  yields_to_move_ = kYieldsToMoveLater;
}

void Waiter::find_cpu() {
  yields_to_move_ = kYieldsToMove;
  note_cpu();
  member_cpus_.clear();
  for (int rank = 0; rank < board_.size(); ++rank) {
    const MemberState state = board_.member(rank).state.load(std::memory_order_relaxed);
    if (state == MemberState::kComputing || state == MemberState::kWaiting)
      member_cpus_.push_back(static_cast<int>(board_.member(rank).cpu.load(std::memory_order_relaxed)) - 1);
  }
  const int own = static_cast<int>(cpu_) - 1;
  const std::vector<int> allowed = allowed_cpus();
  const auto better = better_cpu(member_cpus_, own, allowed);
  if (!better) return;
  if (!move_to_cpu(*better, allowed)) yields_to_move_ = kYieldsToMoveLater;
  note_cpu();
}

bool Waiter::look(Awaited& awaited) {
  if (background_ != nullptr) background_->advance();
  return awaited.arrived();
}

Waiter::Outcome Waiter::wait_long(const WordSet& words, std::uint64_t target, int late) {
  AwaitedWords awaited(words, target, late);
  return wait_long(awaited, JobDeadline::after(memory_.header(), timeout_));
}

Waiter::Outcome Waiter::wait_long(Awaited& awaited, JobDeadline deadline) {
  own_.state.store(MemberState::kWaiting, std::memory_order_relaxed);
  if (parked_waits_ > 0) --parked_waits_;
  const Outcome outcome = wait_by_policy(awaited, deadline);
  long_wait_.end();
  own_.state.store(MemberState::kComputing, std::memory_order_relaxed);
  note_cpu();
  return outcome;
}

Waiter::Outcome Waiter::wait_by_policy(Awaited& awaited, JobDeadline deadline) {
  const auto start = Clock::now();
  std::chrono::nanoseconds next_look = LongWait::kFirstLook;
  Outcome outcome;
  for (;;) {
    if (look(awaited)) return Outcome::kArrived;
    if (find_reason_to_stop(awaited, deadline, outcome)) {
      // What the lost member posted before its end counts; all others see the same words and go on likewise.
      return awaited.arrived() ? Outcome::kArrived : outcome;
    }
    const auto waited = Clock::now() - start;
    if (waited >= next_look) {
      long_wait_.look(awaited, deadline, background_ == nullptr ? 0 : background_->moves());
      next_look = Clock::now() - start + LongWait::kLookAgain;
      continue;
    }
    const bool yields = crowded_ || shares_my_cpu(awaited);
    // A program that takes whole time slices makes yields worthless, not spinning: while this member has its CPU,
    // others that run on theirs may come any moment.
    if (yields ? parked_waits_ > 0 || waited > kYieldsForSpins * spin_budget_ : waited > spin_budget_) {
      park(awaited, deadline);
      if (detail::is_interrupted()) return awaited.arrived() ? Outcome::kArrived : Outcome::kInterrupted;
    } else if (yields) {
      if (--yields_to_move_ <= 0) find_cpu();
      yield_and_time();
    } else {
      for (int i = 0; i < kSpinsPerLook; ++i) {
        if (awaited.arrived()) return Outcome::kArrived;
        cpu_relax();
      }
    }
  }
}

void Waiter::park(Awaited& awaited, JobDeadline deadline) {
  const std::uint32_t bell = own_.bell.load(std::memory_order_seq_cst);
  const std::uint32_t ringer = awaited.bell_ringer();
  own_.state.store(MemberState::kParked, std::memory_order_relaxed);
  own_.parked_for.store(ringer, std::memory_order_seq_cst);
  header_.parked.fetch_add(1, std::memory_order_seq_cst);
  bool sleeps = !look(awaited) && awaited.bell_ringer() == ringer;
  std::array<FutexWait, kMaxFutexWaits> waits;
  std::size_t count = 0;
  waits[count++] = {&own_.bell, bell};
  for (int rank = 0; sleeps && rank < board_.size() && count < waits.size(); ++rank) {
    if (rank == rank_ || !awaited.is_late(rank)) continue;
    auto& life = processes_[static_cast<std::size_t>(rank)]->life.word();
    std::uint32_t expected = 0;
    if (watch(life, expected)) waits[count++] = {&life, expected};
    if ((expected & LifeLock::kOwnerDied) != 0) sleeps = !awaited.is_in_vain_without(rank);
  }
  if (sleeps) futex_wait_any({waits.data(), count}, deadline.left(look_up_));
  header_.parked.fetch_sub(1, std::memory_order_seq_cst);
  own_.parked_for.store(0, std::memory_order_relaxed);
  own_.state.store(MemberState::kWaiting, std::memory_order_relaxed);
  // The kernel wakes one waiter of a life lock only, and others may wait for it in other groups.
  for (std::size_t i = 1; i < count; ++i)
    if ((waits[i].word->load(std::memory_order_acquire) & LifeLock::kOwnerDied) != 0) futex_wake_all(*waits[i].word);
}

void Waiter::ring(Member& member) {
  member.bell.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(member.bell);
}

void Waiter::ring_parked() {
  for (int rank = 0; rank < board_.size(); ++rank) {
    Member& member = board_.member(rank);
    const std::uint32_t ringer = member.parked_for.load(std::memory_order_seq_cst);
    if (ringer == static_cast<std::uint32_t>(rank_) + 1 || ringer == kAnybody) ring(member);
  }
}

void Waiter::ring_if_parked(Member& member) {
  if (member.parked_for.load(std::memory_order_seq_cst) != 0) ring(member);
}

void Waiter::note_cpu() {
  const auto cpu = static_cast<std::uint32_t>(sched_getcpu()) + 1;
  if (cpu == cpu_) return;
  cpu_ = cpu;
  own_.cpu.store(cpu, std::memory_order_relaxed);
}

}  // namespace retinue
