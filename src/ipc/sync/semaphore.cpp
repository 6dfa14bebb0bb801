#include "retinue/ipc/semaphore.h"

#include <fmt/format.h>

#include "ipc/sync/sync_layout.h"
#include "ipc/sync/sync_wait.h"
#include "os/testing/crash_point.h"

namespace retinue {

Semaphore::Semaphore(SyncKind kind, const std::shared_ptr<JobMemory>& memory, std::int64_t value) : Semaphore(kind) {
  if (value < 0 || value > kMostValue)
    throw UsageError(fmt::format("the initial value of a Semaphore is {}; it must be 0 to {}", value, kMostValue));
  block_ = make_sync_block(memory, kind, sizeof(SemaphoreState));
  auto& state = this->state();
  const auto first = static_cast<std::uint32_t>(value);
  state.most = kind == SyncKind::kBoundedSemaphore ? first : kMostValue;
  state.value.store(first, std::memory_order_release);
}

SemaphoreState& Semaphore::state() const {
  return sync_state<SemaphoreState>(block_, "Semaphore");
}

bool Semaphore::acquire(Time timeout) {
  SemaphoreState& state = this->state();
  const std::shared_ptr<JobMemory> memory = block_.memory();
  const auto attempt = [&] {
    std::uint32_t value = state.value.load(std::memory_order_seq_cst);
    while (value != 0)
      if (state.value.compare_exchange_weak(value, value - 1, std::memory_order_seq_cst)) return true;
    return false;
  };
  if (!wait_at_bell(*memory, state.bell, state.spin_budget, timeout, "waiting for a semaphore", attempt)) return false;
  RETINUE_CRASH_POINT();
  // The ring that came may have been for several.
  if (state.value.load(std::memory_order_seq_cst) != 0) ring(state.bell);
  return true;
}

void Semaphore::release(std::int64_t count) {
  if (count < 0) throw UsageError(fmt::format("Semaphore::release: the count {} is negative", count));
  SemaphoreState& state = this->state();
  std::uint32_t value = state.value.load(std::memory_order_relaxed);
  do {
    if (count > std::int64_t{state.most} - value)
      throw UsageError(
          fmt::format("Semaphore::release: {} + {} would be more than {}: it was released more often than acquired",
                      value, count, state.most));
  } while (
      !state.value.compare_exchange_weak(value, value + static_cast<std::uint32_t>(count), std::memory_order_seq_cst));
  RETINUE_CRASH_POINT();
  if (count != 0) ring(state.bell);
}

std::uint32_t Semaphore::get_value() const {
  return state().value.load(std::memory_order_acquire);
}

}  // namespace retinue
