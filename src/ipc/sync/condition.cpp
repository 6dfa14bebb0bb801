#include "retinue/ipc/condition.h"

#include <fmt/format.h>

#include <cerrno>

#include "ipc/memory/job_clock.h"
#include "ipc/memory/job_end.h"
#include "ipc/ring/ring_bell.h"
#include "ipc/sync/sync_layout.h"
#include "ipc/sync/wait_list.h"
#include "os/testing/crash_point.h"

namespace retinue {

struct ConditionState {
  SyncHeader header;
  WaitListState waiters;
};

Condition::Condition() : Condition(nullptr) {
  if (is_to_be_made()) *this = create();
}

Condition::Condition(const Lock& lock) : Condition(nullptr) {
  lock_ = lock;
  make_state();
}

Condition::Condition(const RLock& lock) : Condition(nullptr) {
  rlock_ = lock;
  make_state();
}

void Condition::make_state() {
  static_cast<void>(base_lock().locked());  // Throws where there is none.
  block_ = make_sync_block(base_lock().block_.memory(), SyncKind::kCondition, sizeof(ConditionState));
}

ConditionState& Condition::held_state(const char* operation) {
  auto& state = sync_state<ConditionState>(block_, "Condition");
  if (!base_lock().is_held_here())
    throw UsageError(
        fmt::format("Condition::{}: the calling thread does not hold the lock: acquire it first", operation));
  return state;
}

void Condition::unlock() noexcept {
  base_lock().unlock();
}

bool Condition::wait(Time timeout) {
  ConditionState& state = held_state("wait");
  const std::shared_ptr<JobMemory> memory = block_.memory();
  WaitList waiters(*memory, state.waiters);
  waiters.pass_on_wakeups_of_the_dead();  // Their places may be needed.
  const JobDeadline deadline = JobDeadline::after(memory->header(), timeout);
  const std::uint32_t index = waiters.enter("waiting for a condition");
  const WaitPlace mine = waiters.at(index);
  const std::uint32_t depth = base_lock().release_all_levels();
  RETINUE_CRASH_POINT();
  bool is_interrupted = false;
  try {
    while (waiters.at(index) == mine && !deadline.passed()) {
      waiters.sleep(index, mine, deadline.left(kRingLookUp));
      if (waiters.at(index) != mine) break;
      is_interrupted = detail::is_interrupted();
      if (is_interrupted) break;
      throw_if_job_ends(*memory, "waiting for a condition");
      waiters.pass_on_wakeups_of_the_dead();
    }
    RETINUE_CRASH_POINT();
    base_lock().acquire_levels(depth);
  } catch (...) {
    waiters.leave(index, mine);
    throw;
  }
  RETINUE_CRASH_POINT();
  const bool is_notified = waiters.at(index) != mine;
  waiters.leave(index, mine);
  if (is_interrupted) {
    if (is_notified) waiters.wake_oldest();  // The wake-up goes to another one.
    throw SystemError("waiting for a condition", EINTR);
  }
  return is_notified;
}

void Condition::notify(std::uint32_t count) {
  ConditionState& state = held_state("notify");
  const std::shared_ptr<JobMemory> memory = block_.memory();
  WaitList waiters(*memory, state.waiters);
  while (count-- > 0 && waiters.wake_oldest()) continue;
}

Condition::Time Condition::end_after(Time timeout) const {
  if (!block_ || timeout == Time::max()) return Time::max();
  const Time now = job_now(block_.memory()->header());
  return timeout > Time::max() - now ? Time::max() : now + timeout;
}

Condition::Time Condition::left_until(Time end) const {
  return end == Time::max() ? end : end - job_now(block_.memory()->header());
}

}  // namespace retinue
