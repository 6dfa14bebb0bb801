#include "retinue/ipc/barrier.h"

#include <fmt/format.h>

#include <optional>

#include "ipc/memory/job_clock.h"
#include "ipc/memory/job_end.h"
#include "ipc/ring/ring_bell.h"
#include "ipc/sync/sync_layout.h"
#include "ipc/sync/wait_list.h"
#include "os/sync/futex.h"
#include "os/testing/crash_point.h"
#include "retinue/base/error.h"

namespace retinue {

enum class BarrierPhase : std::uint32_t {
  kFilling = 0,
  kActing = 1,  ///< All have come, and the last one's action runs.
  kBroken = 2,
};

enum class BreakReason : std::uint32_t { kTimeout, kDeath, kAbort, kAction, kReset };

namespace {

const char* text_of(BreakReason reason) {
  switch (reason) {
    case BreakReason::kTimeout:
      return "a party timed out before all parties arrived";
    case BreakReason::kDeath:
      return "a party was killed, ended or gave up while it waited";
    case BreakReason::kAbort:
      return "abort() was called";
    case BreakReason::kAction:
      return "the action threw";
    case BreakReason::kReset:
      return "reset() was called while parties waited";
  }
  return "unknown reason";
}

}  // namespace

/// All but the places is changed under `mutex` only.
struct BarrierState {
  SyncHeader header;
  RobustMutex mutex;
  std::uint32_t parties;
  std::atomic<BarrierPhase> phase;
  std::atomic<BreakReason> reason;     ///< Of the last time that parties waited in vain.
  std::atomic<std::uint32_t> changes;  ///< Futex: counts what ends a round, or the action.
  WaitListState waiters;
};

/// One call. What a killed process left half done broke the barrier: it was one of its parties.
class Barrier::Impl {
 public:
  explicit Impl(const SharedBlock& block)
      : state_(sync_state<BarrierState>(block, "Barrier")),
        memory_(block.memory()),
        waiters_(*memory_, state_.waiters) {}

  int wait(const Action& action, JobDeadline deadline);
  void break_up(BreakReason reason);
  void reset();
  BarrierState& state() const { return state_; }
  const JobMemory& memory() const { return *memory_; }
  int n_waiting();

 private:
  class Locked;
  struct Place {
    std::uint32_t index;
    WaitPlace word;
    int number;  ///< How many had come before.
  };

  int count_waiting() const { return static_cast<int>(waiters_.count_waiting()); }
  /// With the lock.
  void release_waiters(WaitPlace::Phase phase, BarrierPhase next);
  void break_locked(BreakReason reason);
  bool check_living();

  /// None when an action must end first. `changes` are those that were seen.
  std::optional<Place> enter(std::uint32_t& changes);
  void wait_for_action(std::uint32_t changes, JobDeadline deadline);
  void act(const Place& place, const Action& action);
  void sleep(const Place& place, JobDeadline deadline);
  void give_up(const Place& place, bool is_interrupted);
  bool time_is_over(const Place& place);
  [[noreturn]] void throw_broken() const;

  BarrierState& state_;
  std::shared_ptr<JobMemory> memory_;
  WaitList waiters_;
};

class Barrier::Impl::Locked {
 public:
  explicit Locked(Impl& impl) : lock_(impl.state_.mutex, impl.memory_->lock_patience()) {
    if (lock_.owner_died()) impl.break_locked(BreakReason::kDeath);
  }

 private:
  RobustLock lock_;
};

void Barrier::Impl::release_waiters(WaitPlace::Phase phase, BarrierPhase next) {
  state_.phase.store(next, std::memory_order_release);
  RETINUE_CRASH_POINT();
  waiters_.wake_all(phase);
  RETINUE_CRASH_POINT();
  state_.changes.fetch_add(1, std::memory_order_acq_rel);
  RETINUE_CRASH_POINT();
  futex_wake_all(state_.changes);
}

void Barrier::Impl::break_locked(BreakReason reason) {
  state_.reason.store(reason, std::memory_order_relaxed);
  release_waiters(WaitPlace::Phase::kSpecial, BarrierPhase::kBroken);
}

/// False where one that waits, or acts, has died or given up; then it is broken.
bool Barrier::Impl::check_living() {
  if (!waiters_.has_dead_waiter()) return true;
  break_locked(BreakReason::kDeath);
  return false;
}

void Barrier::Impl::break_up(BreakReason reason) {
  const Locked locked(*this);
  break_locked(reason);
}

void Barrier::Impl::reset() {
  const Locked locked(*this);
  state_.reason.store(BreakReason::kReset, std::memory_order_relaxed);
  release_waiters(WaitPlace::Phase::kSpecial, BarrierPhase::kFilling);
}

/// With the lock, so that not some of those that are let go at once still count.
int Barrier::Impl::n_waiting() {
  const Locked locked(*this);
  return state_.phase.load(std::memory_order_relaxed) == BarrierPhase::kBroken ? 0 : count_waiting();
}

void Barrier::Impl::throw_broken() const {
  throw BrokenBarrierError(fmt::format("Barrier::wait for {} parties: the barrier broke: {}", state_.parties,
                                       text_of(state_.reason.load(std::memory_order_relaxed))));
}

std::optional<Barrier::Impl::Place> Barrier::Impl::enter(std::uint32_t& changes) {
  const Locked locked(*this);
  RETINUE_CRASH_POINT();
  if (state_.phase.load(std::memory_order_relaxed) == BarrierPhase::kBroken || !check_living()) throw_broken();
  changes = state_.changes.load(std::memory_order_relaxed);
  if (state_.phase.load(std::memory_order_relaxed) == BarrierPhase::kActing) return std::nullopt;
  const int number = count_waiting();
  const std::uint32_t index = waiters_.enter("waiting at a barrier");
  const Place place{index, waiters_.at(index), number};
  if (number + 1 == static_cast<int>(state_.parties))
    state_.phase.store(BarrierPhase::kActing, std::memory_order_release);
  RETINUE_CRASH_POINT();
  return place;
}

void Barrier::Impl::wait_for_action(std::uint32_t changes, JobDeadline deadline) {
  if (deadline.passed()) {
    break_up(BreakReason::kTimeout);
    throw_broken();
  }
  futex_wait(state_.changes, changes, deadline.left(kRingLookUp));
  if (state_.changes.load(std::memory_order_acquire) == changes) throw_if_wait_ends(*memory_, "waiting at a barrier");
}

void Barrier::Impl::act(const Place& place, const Action& action) {
  try {
    if (action) action();
  } catch (...) {
    const Locked locked(*this);
    if (waiters_.at(place.index) == place.word) break_locked(BreakReason::kAction);
    throw;
  }
  const Locked locked(*this);
  if (waiters_.at(place.index) == place.word) release_waiters(WaitPlace::Phase::kWoken, BarrierPhase::kFilling);
}

/// The others have come by now, or this one's time is over, and so is the barrier's.
bool Barrier::Impl::time_is_over(const Place& place) {
  const Locked locked(*this);
  if (waiters_.at(place.index) != place.word) return true;
  if (state_.phase.load(std::memory_order_relaxed) == BarrierPhase::kActing) return false;
  break_locked(BreakReason::kTimeout);
  return true;
}

void Barrier::Impl::sleep(const Place& place, JobDeadline deadline) {
  while (waiters_.at(place.index) == place.word) {
    if (deadline.passed()) {
      if (time_is_over(place)) return;
      deadline = JobDeadline::after(memory_->header(), Time::max());  // The action has what time it needs.
    }
    waiters_.sleep(place.index, place.word, deadline.left(kRingLookUp));
    if (waiters_.at(place.index) != place.word) return;
    throw_if_wait_ends(*memory_, "waiting at a barrier");
    // One that died while it let the others go does not wait any more, but has the lock.
    if (!waiters_.has_dead_waiter() && !state_.mutex.is_orphaned()) continue;
    const Locked locked(*this);
    check_living();
  }
}

/// One whose wait a signal ended goes as if it had not come. Else it waited in vain, as where it could not have the
/// lock: the others learn of it.
void Barrier::Impl::give_up(const Place& place, bool is_interrupted) {
  if (is_interrupted) {
    try {
      const Locked locked(*this);
      waiters_.leave(place.index, place.word);
      return;
    } catch (const Error&) {
      // As below.
    }
  }
  waiters_.forsake(place.index, place.word);
}

int Barrier::Impl::wait(const Action& action, JobDeadline deadline) {
  std::uint32_t changes = 0;
  std::optional<Place> place;
  for (place = enter(changes); !place; place = enter(changes)) wait_for_action(changes, deadline);
  try {
    if (place->number + 1 == static_cast<int>(state_.parties)) {
      act(*place, action);
    } else {
      sleep(*place, deadline);
    }
  } catch (const SystemError& error) {
    give_up(*place, error.errno_value() == EINTR);
    throw;
  } catch (...) {
    give_up(*place, false);
    throw;
  }
  RETINUE_CRASH_POINT();
  const bool passed = waiters_.at(place->index) == place->word.with(WaitPlace::Phase::kWoken);
  waiters_.leave(place->index, place->word);
  if (!passed) throw_broken();
  return place->number;
}

Barrier::Barrier(const std::shared_ptr<JobMemory>& memory, int parties) : Barrier() {
  if (parties < 1 || parties > kMostParties)
    throw UsageError(fmt::format("a Barrier has {} parties; it must have 1 to {}", parties, kMostParties));
  block_ = make_sync_block(memory, SyncKind::kBarrier, sizeof(BarrierState));
  auto& state = *reinterpret_cast<BarrierState*>(block_.data());
  state.mutex.init();
  state.parties = static_cast<std::uint32_t>(parties);
}

int Barrier::wait(const Action& action, Time timeout) {
  Impl impl(block_);
  return impl.wait(action, JobDeadline::after(impl.memory().header(), timeout));
}

void Barrier::reset() {
  Impl(block_).reset();
}

void Barrier::abort() {
  Impl(block_).break_up(BreakReason::kAbort);
}

int Barrier::parties() const {
  return static_cast<int>(Impl(block_).state().parties);
}

int Barrier::n_waiting() const {
  return Impl(block_).n_waiting();
}

bool Barrier::broken() const {
  return Impl(block_).state().phase.load(std::memory_order_acquire) == BarrierPhase::kBroken;
}

}  // namespace retinue
