#include "retinue/ipc/lock.h"

#include <fmt/format.h>
#include <sched.h>

#include <new>
#include <utility>

#include "ipc/memory/job_clock.h"
#include "ipc/memory/job_end.h"
#include "ipc/ring/ring_bell.h"
#include "ipc/sync/sync_layout.h"
#include "os/process/process_look.h"
#include "os/sync/futex.h"
#include "os/testing/crash_point.h"

namespace retinue {
namespace {

using Result = RobustMutex::Result;

/// Of 10 to 50 ns each; a wake-up by futex takes as long as some hundreds of them.
constexpr int kMostPauses = 1000;

std::uint32_t this_cpu() {
  return static_cast<std::uint32_t>(sched_getcpu()) + 1;
}

const char* name_of(const LockState& state) {
  return state.header.kind == SyncKind::kLock ? "Lock" : "RLock";
}

/// Until it seems to be free, if its holder runs elsewhere: it may be through in a moment.
void spin_for(const LockState& state) {
  if (state.cpu.load(std::memory_order_relaxed) == this_cpu()) return;
  state.mutex.spin_while_held(kMostPauses);
}

void sleep_a_little(const JobDeadline& deadline) {
  static const std::atomic<std::uint32_t> nobody_wakes{0};
  futex_wait(nobody_wakes, 0, deadline.left(kRingLookUp));
}

[[noreturn]] void throw_not_held(const LockState& state) {
  const std::uint32_t holder = state.mutex.holder();
  const std::string who = holder == 0
                              ? "no thread does"
                              : fmt::format("thread {} does{}", holder, standstill_clause(static_cast<pid_t>(holder)));
  throw UsageError(
      fmt::format("{}::release: the calling thread does not hold it, {}; only the thread that acquired it can release "
                  "it (use a Semaphore if another thread must)",
                  name_of(state), who));
}

SharedBlock lay_out_lock(SharedBlock block, SyncKind kind) {
  lay_out_sync_block(block, kind, sizeof(LockState));
  reinterpret_cast<LockState*>(block.data())->mutex.init_checked();
  return block;
}

SharedBlock make_lock(const std::shared_ptr<JobMemory>& memory, SyncKind kind) {
  return lay_out_lock(SharedBlock::allocate(memory, sizeof(LockState)), kind);
}

}  // namespace

Lock::Lock() : Lock(nullptr) {
  if (is_to_be_made()) *this = create();
}

RLock::RLock() : RLock(nullptr) {
  if (is_to_be_made()) *this = create();
}

Lock Lock::create(const std::shared_ptr<JobMemory>& memory) {
  Lock lock(nullptr);
  lock.block_ = make_lock(memory, SyncKind::kLock);
  return lock;
}

RLock RLock::create(const std::shared_ptr<JobMemory>& memory) {
  RLock lock(nullptr);
  lock.block_ = make_lock(memory, SyncKind::kRLock);
  return lock;
}

RLock RLock::lay_out(const SharedBlock& block) {
  RLock lock(nullptr);
  lock.block_ = lay_out_lock(block, SyncKind::kRLock);
  return lock;
}

LockState& BasicLock::state() const {
  return sync_state<LockState>(block_, "lock");
}

bool BasicLock::acquire(Time timeout) {
  LockState& state = this->state();
  const Result result = state.mutex.try_lock(Time(0));
  if (result == Result::kLocked || result == Result::kOwnerDied) {
    note_taken(state, result == Result::kOwnerDied);
    return true;
  }
  if (result == Result::kHeldByCaller && state.header.kind == SyncKind::kRLock) {
    ++state.depth;
    return true;
  }
  if (result == Result::kHeldByCaller && timeout == Time::max())
    throw UsageError(
        "Lock::acquire: the calling thread holds it already and would wait for itself forever: use an RLock");
  return timeout > Time(0) && wait(state, timeout);
}

bool BasicLock::wait(LockState& state, Time timeout) {
  const std::shared_ptr<JobMemory> memory = block_.memory();
  const JobDeadline deadline = JobDeadline::after(memory->header(), timeout);
  spin_for(state);
  for (;;) {
    const Result result = state.mutex.try_lock(deadline.left(kRingLookUp));
    if (result == Result::kLocked || result == Result::kOwnerDied) {
      note_taken(state, result == Result::kOwnerDied);
      return true;
    }
    if (deadline.passed()) return false;
    throw_if_wait_ends(*memory, "waiting for a lock");
    if (result == Result::kHeldByCaller) sleep_a_little(deadline);
  }
}

void BasicLock::note_taken(LockState& state, bool from_the_dead) {
  RETINUE_CRASH_POINT();
  state.cpu.store(this_cpu(), std::memory_order_relaxed);
  state.depth = 1;
  RETINUE_CRASH_POINT();
  state.owner_died = from_the_dead || state.death_to_tell != 0 ? 1 : 0;
  RETINUE_CRASH_POINT();
  state.death_to_tell = 0;
  RETINUE_CRASH_POINT();
  new (state.keep) SharedBlock(block_);
}

void BasicLock::release_mutex(LockState& state) {
  auto* const keep = std::launder(reinterpret_cast<SharedBlock*>(state.keep));
  const SharedBlock until_unlocked = std::move(*keep);
  keep->~SharedBlock();
  RETINUE_CRASH_POINT();
  state.owner_died = 0;
  RETINUE_CRASH_POINT();
  state.mutex.unlock();
  RETINUE_CRASH_POINT();
}

void BasicLock::release() {
  if (!is_held_here()) throw_not_held(state());
  unlock();
}

void BasicLock::unlock() noexcept {
  if (!block_ || !is_held_here()) return;
  LockState& state = this->state();
  if (--state.depth == 0) release_mutex(state);
}

bool BasicLock::owner_died() const {
  return is_held_here() && state().owner_died != 0;
}

bool BasicLock::locked() const {
  return state().mutex.holder() != 0;
}

/// No system call: the lock itself knows who asks, also in a fork of its holder.
bool BasicLock::is_held_here() const {
  LockState& state = this->state();
  if (state.mutex.holder() == 0) return false;
  const Result result = state.mutex.try_lock(Time(0));
  if (result == Result::kHeldByCaller) return true;
  if (result == Result::kBusy) return false;
  RETINUE_CRASH_POINT();
  if (result == Result::kOwnerDied) state.death_to_tell = 1;
  RETINUE_CRASH_POINT();
  state.mutex.unlock();
  return false;
}

std::uint32_t BasicLock::release_all_levels() {
  LockState& state = this->state();
  const std::uint32_t depth = std::exchange(state.depth, 0);
  release_mutex(state);
  return depth;
}

void BasicLock::acquire_levels(std::uint32_t depth) {
  acquire();
  state().depth = depth;
}

}  // namespace retinue
